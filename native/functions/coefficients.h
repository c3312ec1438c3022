/* Written by tools/coefficients.py: change that. */
/* clang-format off */
#ifndef SAMERUN_COEFFICIENTS_H
#define SAMERUN_COEFFICIENTS_H

#include "../portable.h"

#define LN2_0 0x1.62e42fefa4000p-1
#define LN2_1 -0x1.8432a1b0e2634p-43
#define LN2_PAIR_0 0x1.62e42fefa39efp-1
#define LN2_PAIR_1 0x1.abc9e3b39803fp-56
#define LOG2_E_0 0x1.71547652b82fep+0
#define LOG2_E_1 0x1.777d0ffda0d24p-56
#define LOG10_2_0 0x1.34413509f8000p-2
#define LOG10_2_1 -0x1.80433b83b532ap-44
#define LOG10_E_0 0x1.bcb7b1526e50ep-2
#define LOG10_E_1 0x1.95355baaafad3p-57
#define HALF_PI_0 0x1.921fb54442d18p+0
#define HALF_PI_1 0x1.1a62633145c07p-54
#define HALF_PI_2 -0x1.f1976b7ed8fbcp-110
#define QUARTER_PI_0 0x1.921fb54442d18p-1
#define QUARTER_PI_1 0x1.1a62633145c07p-55
#define TWO_OVER_PI_0 0x1.45f306dc9c883p-1
#define TWO_OVER_PI_WORDS {0xA2F9836EU, 0x4E441529U, 0xFC2757D1U, 0xF534DDC0U, 0xDB629599U, 0x3C439041U, 0xFE5163ABU, 0xDEBBC561U, 0xB7246E3AU, 0x424DD2E0U}

/* (e^z - 1 - z) / z^2, |z| <= ln(2)/2: to 2^-56 */
PORTABLE double exp_tail_polynomial(double z) {
    const double p1_0 = fma64(0x1.5555555555556p-3, z, 0x1.0000000000001p-1);
    const double p1_1 = fma64(0x1.11111111109b4p-7, z, 0x1.5555555553d67p-5);
    const double p1_2 = fma64(0x1.a01a01a7c32c2p-13, z, 0x1.6c16c1788a511p-10);
    const double p1_3 = fma64(0x1.71de0db20c878p-19, z, 0x1.a019b9131da1ep-16);
    const double p1_4 = fma64(0x1.af38a0fcc6f5bp-26, z, 0x1.28917e4e572cdp-22);
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double p2_2 = p1_4;
    const double z4 = z2 * z2;
    const double p3_0 = fma64(p2_1, z4, p2_0);
    const double p3_1 = p2_2;
    const double z8 = z4 * z4;
    return fma64(p3_1, z8, p3_0);
}

/* (2^z - 1) / z, |z| <= 1/2: to 2^-55 */
PORTABLE double exp2m1_over_z_polynomial(double z) {
    const double p1_0 = fma64(0x1.ebfbdff82c598p-3, z, 0x1.62e42fefa39efp-1);
    const double p1_1 = fma64(0x1.3b2ab6fba1dc6p-7, z, 0x1.c6b08d704a0c2p-5);
    const double p1_2 = fma64(0x1.4309130975155p-13, z, 0x1.5d87fe78a526dp-10);
    const double p1_3 = fma64(0x1.62bfd46781ef6p-20, z, 0x1.ffcbfc6712438p-17);
    const double p1_4 = fma64(0x1.e6065f532c950p-28, z, 0x1.b524fad88ed30p-24);
    const double p1_5 = 0x1.e9d419696e0e9p-32;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double p2_2 = fma64(p1_5, z2, p1_4);
    const double z4 = z2 * z2;
    const double p3_0 = fma64(p2_1, z4, p2_0);
    const double p3_1 = p2_2;
    const double z8 = z4 * z4;
    return fma64(p3_1, z8, p3_0);
}

/* (log((1+s)/(1-s)) - 2s) / s^3, z = s^2: to 2^-60 */
PORTABLE double log_tail_polynomial(double z) {
    const double p1_0 = fma64(0x1.9999999999a38p-2, z, 0x1.5555555555555p-1);
    const double p1_1 = fma64(0x1.c71c720159177p-3, z, 0x1.2492492476cccp-2);
    const double p1_2 = fma64(0x1.3b1c355a8f7a2p-3, z, 0x1.745cf9048dd95p-3);
    const double p1_3 = fma64(0x1.0c039c49989c6p-3, z, 0x1.0fbe95d716020p-3);
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double z4 = z2 * z2;
    return fma64(p2_1, z4, p2_0);
}

/* (sin(x) - x) / x^3, z = x^2: to 2^-57 */
PORTABLE double sin_tail_polynomial(double z) {
    const double p1_0 = fma64(0x1.1111111111110p-7, z, -0x1.5555555555555p-3);
    const double p1_1 = fma64(0x1.71de3a546095bp-19, z, -0x1.a01a01a019938p-13);
    const double p1_2 = fma64(0x1.61217f0b800d5p-33, z, -0x1.ae645412c560cp-26);
    const double p1_3 = -0x1.ab17d404de5b3p-41;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double z4 = z2 * z2;
    return fma64(p2_1, z4, p2_0);
}

/* (cos(x) - 1 + x^2/2) / x^4, z = x^2: to 2^-59 */
PORTABLE double cos_tail_polynomial(double z) {
    const double p1_0 = fma64(-0x1.6c16c16c16c16p-10, z, 0x1.5555555555555p-5);
    const double p1_1 = fma64(-0x1.27e4fb7712d65p-22, z, 0x1.a01a01a019d0ap-16);
    const double p1_2 = fma64(-0x1.9394ba0cd6ed5p-37, z, 0x1.1eed8deb97a97p-29);
    const double p1_3 = 0x1.ab785b00b4646p-45;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double z4 = z2 * z2;
    return fma64(p2_1, z4, p2_0);
}

/* (atan(x) - x) / x^3, z = x^2, |x| <= tan(pi/8): to 2^-57 */
PORTABLE double atan_tail_polynomial(double z) {
    const double p1_0 = fma64(0x1.9999999999997p-3, z, -0x1.5555555555555p-2);
    const double p1_1 = fma64(0x1.c71c71c6ddbfcp-4, z, -0x1.24924924920adp-3);
    const double p1_2 = fma64(0x1.3b13aea9e84b6p-4, z, -0x1.745d173565149p-4);
    const double p1_3 = fma64(0x1.e1d8e9bffe59dp-5, z, -0x1.1110cee80b516p-4);
    const double p1_4 = fma64(0x1.829ce3237ab26p-5, z, -0x1.aebd1fa559894p-5);
    const double p1_5 = fma64(0x1.f5ef74d05428dp-6, z, -0x1.503c4469943acp-5);
    const double p1_6 = -0x1.c81291cfc455fp-7;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double p2_2 = fma64(p1_5, z2, p1_4);
    const double p2_3 = p1_6;
    const double z4 = z2 * z2;
    const double p3_0 = fma64(p2_1, z4, p2_0);
    const double p3_1 = fma64(p2_3, z4, p2_2);
    const double z8 = z4 * z4;
    return fma64(p3_1, z8, p3_0);
}

/* (asin(x) - x) / x^3, z = x^2, |x| <= 1/2: to 2^-58 */
PORTABLE double asin_tail_polynomial(double z) {
    const double p1_0 = fma64(0x1.333333333332dp-4, z, 0x1.5555555555555p-3);
    const double p1_1 = fma64(0x1.f1c71c70ee54ap-6, z, 0x1.6db6db6db7c7fp-5);
    const double p1_2 = fma64(0x1.1c4ebd7735bf2p-6, z, 0x1.6e8ba31c9dc09p-6);
    const double p1_3 = fma64(0x1.7a70c2a695fe0p-7, z, 0x1.c99afe79266f3p-7);
    const double p1_4 = fma64(0x1.0a9849ba5937fp-7, z, 0x1.40e38d543d8d2p-7);
    const double p1_5 = fma64(0x1.8f5a75293b096p-12, z, 0x1.2031dbbbbad45p-7);
    const double p1_6 = fma64(-0x1.898d77b6dddb2p-6, z, 0x1.7184808eff5eep-6);
    const double p1_7 = 0x1.f74bdb0d4b5bep-6;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double p2_2 = fma64(p1_5, z2, p1_4);
    const double p2_3 = fma64(p1_7, z2, p1_6);
    const double z4 = z2 * z2;
    const double p3_0 = fma64(p2_1, z4, p2_0);
    const double p3_1 = fma64(p2_3, z4, p2_2);
    const double z8 = z4 * z4;
    return fma64(p3_1, z8, p3_0);
}

/* erf(x) / x, z = x^2 - 7.75, |x| <= 3.93: to 2^-54 */
PORTABLE double erf_over_x_polynomial(double z) {
    const double p1_0 = fma64(-0x1.7b26f08c9b345p-6, z, 0x1.6fcd22af732c0p-2);
    const double p1_1 = fma64(-0x1.ea83a92770e37p-13, z, 0x1.237b69152a75dp-9);
    const double p1_2 = fma64(-0x1.642a6adc7c3abp-19, z, 0x1.a51fecdf5ab5ep-16);
    const double p1_3 = fma64(-0x1.c18ac05b95cb6p-26, z, 0x1.2240dad80af8fp-22);
    const double p1_4 = fma64(-0x1.c1d07a3a1bd31p-33, z, 0x1.4826fb8b98e44p-29);
    const double p1_5 = fma64(-0x1.5c95111a66108p-40, z, 0x1.2116da6310ecep-36);
    const double p1_6 = fma64(-0x1.a4f26cf56c4b3p-48, z, 0x1.8ad7eb5bccc82p-44);
    const double p1_7 = fma64(-0x1.9277a1f88cb36p-56, z, 0x1.a750dbd580ef8p-52);
    const double p1_8 = fma64(-0x1.363649e2cc393p-64, z, 0x1.6a966693d2c5fp-60);
    const double p1_9 = fma64(-0x1.887ad88a89b2ap-73, z, 0x1.f9339230ff53fp-69);
    const double p1_10 = fma64(-0x1.9bb1468f9ca64p-82, z, 0x1.2324b8d378253p-77);
    const double p1_11 = fma64(-0x1.7b103b9500366p-91, z, 0x1.18994e03b63ddp-86);
    const double p1_12 = fma64(-0x1.d1bf6eae7308dp-101, z, 0x1.d9ccbd362722fp-96);
    const double p1_13 = fma64(-0x1.2b7aab98da94fp-109, z, 0x1.17c1998a20c92p-105);
    const double p1_14 = 0x1.3cacd917a7148p-114;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double p2_2 = fma64(p1_5, z2, p1_4);
    const double p2_3 = fma64(p1_7, z2, p1_6);
    const double p2_4 = fma64(p1_9, z2, p1_8);
    const double p2_5 = fma64(p1_11, z2, p1_10);
    const double p2_6 = fma64(p1_13, z2, p1_12);
    const double p2_7 = p1_14;
    const double z4 = z2 * z2;
    const double p3_0 = fma64(p2_1, z4, p2_0);
    const double p3_1 = fma64(p2_3, z4, p2_2);
    const double p3_2 = fma64(p2_5, z4, p2_4);
    const double p3_3 = fma64(p2_7, z4, p2_6);
    const double z8 = z4 * z4;
    const double p4_0 = fma64(p3_1, z8, p3_0);
    const double p4_1 = fma64(p3_3, z8, p3_2);
    const double z16 = z8 * z8;
    return fma64(p4_1, z16, p4_0);
}

/* erfc(x) e^(x^2), z = (x-3)/(x+3), 1/2 <= x <= 10.2: to 2^-52 */
PORTABLE double scaled_erfc_polynomial(double z) {
    const double p1_0 = fma64(-0x1.4e102b9cf8513p-2, z, 0x1.6e9827d229d2dp-3);
    const double p1_1 = fma64(-0x1.336ffbef08b30p-3, z, 0x1.f6ff204105973p-3);
    const double p1_2 = fma64(-0x1.8fa58eb5dc42ap-6, z, 0x1.258b13b017b4bp-4);
    const double p1_3 = fma64(0x1.73101e818fc01p-11, z, 0x1.17c838ee65ee7p-8);
    const double p1_4 = fma64(0x1.7ba0fc2c300eep-15, z, -0x1.39084c42357d1p-11);
    const double p1_5 = fma64(-0x1.af85ed8830174p-17, z, 0x1.0cac2b7ed7479p-14);
    const double p1_6 = fma64(0x1.1c79c6800a028p-19, z, -0x1.0bb196c18d80ap-17);
    const double p1_7 = fma64(-0x1.3a212aa04fc02p-22, z, 0x1.4fe6cd2cc07c1p-20);
    const double p1_8 = fma64(0x1.c92246e4d1fa6p-26, z, -0x1.f0482e4731bcap-23);
    const double p1_9 = fma64(0x1.975924ea31c79p-30, z, 0x1.5cd502b717cacp-25);
    const double p1_10 = -0x1.da2c8ae7fd01ap-29;
    const double z2 = z * z;
    const double p2_0 = fma64(p1_1, z2, p1_0);
    const double p2_1 = fma64(p1_3, z2, p1_2);
    const double p2_2 = fma64(p1_5, z2, p1_4);
    const double p2_3 = fma64(p1_7, z2, p1_6);
    const double p2_4 = fma64(p1_9, z2, p1_8);
    const double p2_5 = p1_10;
    const double z4 = z2 * z2;
    const double p3_0 = fma64(p2_1, z4, p2_0);
    const double p3_1 = fma64(p2_3, z4, p2_2);
    const double p3_2 = fma64(p2_5, z4, p2_4);
    const double z8 = z4 * z4;
    const double p4_0 = fma64(p3_1, z8, p3_0);
    const double p4_1 = p3_2;
    const double z16 = z8 * z8;
    return fma64(p4_1, z16, p4_0);
}

#endif
