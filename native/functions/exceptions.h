/* Inputs of class R functions whose double rounds to the wrong float: bits of the input, bits of the right result.
 * All 2^32 inputs of each function were run (tools/exhaustive.py); what it prints belongs here.
 */
#ifndef SAMERUN_FUNCTIONS_EXCEPTIONS_H
#define SAMERUN_FUNCTIONS_EXCEPTIONS_H

#define EXCEPTIONS_exp(E)
#define EXCEPTIONS_exp2(E) E(0x3B429D37U, 0x3F804385U) E(0xBCF3A937U, 0x3F7AC6B1U)
#define EXCEPTIONS_expm1(E)
#define EXCEPTIONS_sinh(E) E(0x3A1285FFU, 0x3A1285FFU) E(0xBA1285FFU, 0xBA1285FFU)
#define EXCEPTIONS_cosh(E)
#define EXCEPTIONS_tanh(E)
#define EXCEPTIONS_asin(E)
#define EXCEPTIONS_acos(E)
#define EXCEPTIONS_atan(E) E(0x3D8D6B23U, 0x3D8D31C3U) E(0xBD8D6B23U, 0xBD8D31C3U)
#define EXCEPTIONS_erf(E) E(0x3940EAD6U, 0x3959AF14U) E(0xB940EAD6U, 0xB959AF14U)
#define EXCEPTIONS_erfc(E)
#define EXCEPTIONS_rsqrt(E)
#define EXCEPTIONS_reciprocal(E)
#define EXCEPTIONS_cbrt(E)
#define EXCEPTIONS_sigmoid(E)
#define EXCEPTIONS_log(E) \
    E(0x3C413D3AU, 0xC08E158FU) E(0x41178FEBU, 0x400FE5E7U) E(0x4C5D65A5U, 0x418F034BU) \
    E(0x65D890D3U, 0x4254D1F9U) E(0x6F31A8ECU, 0x42845A89U)
#define EXCEPTIONS_log2(E)
#define EXCEPTIONS_log10(E) E(0x0EFEEE7AU, 0xC1E99D23U)
#define EXCEPTIONS_log1p(E) \
    E(0x35400003U, 0x353FFFFFU) E(0x3710001BU, 0x370FFFF3U) E(0x3EFD81ADU, 0x3ECDEEE1U) \
    E(0x41078FEBU, 0x400FE5E7U) E(0x65D890D3U, 0x4254D1F9U) E(0x6F31A8ECU, 0x42845A89U) \
    E(0xB53FFFFDU, 0xB5400001U) E(0xB70FFFE5U, 0xB710000DU) E(0xBB0EC8C4U, 0xBB0EF0A5U)
#define EXCEPTIONS_asinh(E)
#define EXCEPTIONS_acosh(E)
#define EXCEPTIONS_atanh(E)
#define EXCEPTIONS_sin(E)
#define EXCEPTIONS_cos(E)
#define EXCEPTIONS_tan(E)

#endif
