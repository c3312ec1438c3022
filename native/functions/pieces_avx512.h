/* Written by tools/piece_coefficients.py: change that. 32 pieces each, the j-th about j / 8:
 * f(centre + d) is value + d (slope + d (rest_1 + d (rest_2 + ...))). */
/* clang-format off */
#ifndef SAMERUN_PIECES_H
#define SAMERUN_PIECES_H

/* erf(a) / 2, which is 0x1.3333333333333p-36 more; to 2^-36 */
static const float erf_centre[] __attribute__((aligned(64), unused)) = {
    0x1.e61cp-13f, 0x1.e78938p-4f, 0x1.f8720ep-3f, 0x1.7ba566p-2f, 0x1.ff587ap-2f, 0x1.3e39dp-1f, 0x1.7a1464p-1f, 0x1.c0bae8p-1f,
    0x1.fd614ep-1f, 0x1.1f6cd2p+0f, 0x1.3f62bp+0f, 0x1.5b7bap+0f, 0x1.7d7608p+0f, 0x1.9ffc9cp+0f, 0x1.c1f08cp+0f, 0x1.df38eap+0f,
    0x1.00fa32p+1f, 0x1.0fe206p+1f, 0x1.1fd618p+1f, 0x1.302e3cp+1f, 0x1.3fda06p+1f, 0x1.50397ep+1f, 0x1.5fdbfcp+1f, 0x1.6fd6e8p+1f,
    0x1.807a3ap+1f, 0x1.8fe322p+1f, 0x1.a00caep+1f, 0x1.b04658p+1f, 0x1.c0ac52p+1f, 0x1.cfd614p+1f, 0x1.df3a0cp+1f, 0x1.ea9204p+1f,
};
static const float erf_value[] __attribute__((aligned(64), unused)) = {
    0x1.1242p-13f, 0x1.11c4eep-4f, 0x1.16f35cp-3f, 0x1.998a62p-3f, 0x1.0a3554p-2f, 0x1.3dbde8p-2f, 0x1.6845b4p-2f, 0x1.91d43ep-2f,
    0x1.ae5ea4p-2f, 0x1.c67ce6p-2f, 0x1.d83bbap-2f, 0x1.e3e2ep-2f, 0x1.ee086ap-2f, 0x1.f4f608p-2f, 0x1.f960cp-2f, 0x1.fbd8bp-2f,
    0x1.fdaf4p-2f, 0x1.fea2a6p-2f, 0x1.ff3f14p-2f, 0x1.ff9a1ep-2f, 0x1.ffca54p-2f, 0x1.ffe558p-2f, 0x1.fff2bap-2f, 0x1.fff9aep-2f,
    0x1.fffd2cp-2f, 0x1.fffeb2p-2f, 0x1.ffff7p-2f, 0x1.ffffc4p-2f, 0x1.ffffe8p-2f, 0x1.fffff6p-2f, 0x1.fffffcp-2f, 0x1.fffffep-2f,
};
static const float erf_slope[] __attribute__((aligned(64), unused)) = {
    0x1.20dd74p-1f, 0x1.1ccd2ap-1f, 0x1.0fdc62p-1f, 0x1.f788e4p-2f, 0x1.c2396p-2f, 0x1.889a9cp-2f, 0x1.4ee532p-2f, 0x1.0bffd2p-2f,
    0x1.ad6e6cp-3f, 0x1.478fd8p-3f, 0x1.e74edcp-4f, 0x1.6e2144p-4f, 0x1.f5cd02p-5f, 0x1.49ab78p-5f, 0x1.a4fe96p-6f, 0x1.15f40cp-6f,
    0x1.48674cp-7f, 0x1.95f57ep-8f, 0x1.d6c7ap-9f, 0x1.04d06cp-9f, 0x1.1f2bc4p-10f, 0x1.2a260ep-11f, 0x1.353dd4p-12f, 0x1.328742p-13f,
    0x1.1d914ep-14f, 0x1.111df6p-15f, 0x1.e87af8p-17f, 0x1.a5b858p-18f, 0x1.5d3e5cp-19f, 0x1.2c2fdp-20f, 0x1.ef2178p-22f, 0x1.f9fddep-23f,
};
static const float erf_rest_1[] __attribute__((aligned(64), unused)) = {
    -0x1.124274p-13f, -0x1.0f317ap-4f, -0x1.0bd98p-3f, -0x1.755e7ep-3f, -0x1.c1a61p-3f, -0x1.e808b8p-3f, -0x1.ee9918p-3f, -0x1.d5c35ap-3f,
    -0x1.ab3be4p-3f, -0x1.6fc58p-3f, -0x1.2ffb9p-3f, -0x1.f0f7e6p-4f, -0x1.75dcbcp-4f, -0x1.0bd922p-4f, -0x1.71f70cp-5f, -0x1.0428b8p-5f,
    -0x1.49a84p-6f, -0x1.af254cp-7f, -0x1.08a9c2p-7f, -0x1.35e69ap-8f, -0x1.66cc1cp-9f, -0x1.8794e8p-10f, -0x1.a90982p-11f, -0x1.b8713ap-12f,
    -0x1.ace25p-13f, -0x1.aaa004p-14f, -0x1.8cf002p-15f, -0x1.640d8p-16f, -0x1.320c28p-17f, -0x1.0ff2bcp-18f, -0x1.cf6fd6p-20f, -0x1.e4d086p-21f,
};
static const float erf_rest_2[] __attribute__((aligned(64), unused)) = {
    -0x1.81273p-3f, -0x1.70f9aap-3f, -0x1.3e7f84p-3f, -0x1.e6cfc4p-4f, -0x1.2cea9p-4f, -0x1.dc20cap-6f, 0x1.43902ap-7f, 0x1.7f3c1cp-5f,
    0x1.187146p-4f, 0x1.4c2e68p-4f, 0x1.573a9p-4f, 0x1.47aa4p-4f, 0x1.1fc1c6p-4f, 0x1.d66df6p-5f, 0x1.6b5436p-5f, 0x1.1658b4p-5f,
    0x1.827cb8p-6f, 0x1.0f6f02p-6f, 0x1.658996p-7f, 0x1.bf7faap-8f, 0x1.12ed96p-8f, 0x1.3e0454p-9f, 0x1.6bb0dcp-10f, 0x1.8c5c7ep-11f,
    0x1.959e52p-12f, 0x1.a5838cp-13f, 0x1.99b5eep-14f, 0x1.7f3d32p-15f, 0x1.570964p-16f, 0x1.3bf9e6p-17f, 0x1.16dcecp-18f, 0x1.2b243p-19f,
};
static const float erf_rest_3[] __attribute__((aligned(64), unused)) = {
    0x1.e05fa8p-15f, 0x1.0ca624p-5f, 0x1.010498p-4f, 0x1.5323d8p-4f, 0x1.76e37p-4f, 0x1.6a5d16p-4f, 0x1.3ac86ap-4f, 0x1.ca6702p-5f,
    0x1.22aaf6p-5f, 0x1.d5841cp-7f, -0x1.6e330ap-9f, -0x1.c5c6cep-7f, -0x1.6713dp-6f, -0x1.9751acp-6f, -0x1.87f60cp-6f, -0x1.5b974ap-6f,
    -0x1.16172ap-6f, -0x1.b0d74cp-7f, -0x1.39c6d6p-7f, -0x1.ac6d98p-8f, -0x1.1bb2eep-8f, -0x1.606804p-9f, -0x1.ad0902p-10f, -0x1.f01e82p-11f,
    -0x1.0cd6eap-11f, -0x1.25aabep-12f, -0x1.2bda2ap-13f, -0x1.25df7ap-14f, -0x1.130efp-15f, -0x1.079b2p-16f, -0x1.e386b4p-18f, -0x1.0a286ap-18f,
};
static const float erf_rest_4[] __attribute__((aligned(64), unused)) = {
    0x1.cff9d6p-5f, 0x1.ad729cp-5f, 0x1.4b2b14p-5f, 0x1.7e9608p-6f, 0x1.ee95f4p-9f, -0x1.b176c6p-7f, -0x1.a3fb52p-6f, -0x1.1339d8p-5f,
    -0x1.1b7f0ep-5f, -0x1.f7a862p-6f, -0x1.84ccccp-6f, -0x1.0e01dp-6f, -0x1.06f102p-7f, -0x1.1d40b4p-10f, 0x1.cadf82p-9f, 0x1.744d0ep-8f,
    0x1.ad0cd6p-8f, 0x1.99668p-8f, 0x1.5dd6fap-8f, 0x1.110616p-8f, 0x1.926586p-9f, 0x1.13209ap-9f, 0x1.6b2332p-10f, 0x1.c42e6ep-11f,
    0x1.06bf9ap-11f, 0x1.30914cp-12f, 0x1.497116p-13f, 0x1.54bf2p-14f, 0x1.4f8772p-15f, 0x1.5039dcp-16f, 0x1.41949ep-17f, 0x1.63a54ep-18f,
};
static const float erf_rest_5[] __attribute__((aligned(64), unused)) = {
    -0x1.6e4526p-9f, -0x1.72a6f8p-7f, -0x1.4a78dap-6f, -0x1.8ed684p-6f, -0x1.92b842p-6f, -0x1.5f9222p-6f, -0x1.b32d14p-7f, -0x1.427d1p-8f,
    0x1.83e8bp-10f, 0x1.0d4c72p-7f, 0x1.51ed88p-7f, 0x1.6b0586p-7f, 0x1.3f0998p-7f, 0x1.ea7e02p-8f, 0x1.304902p-8f, 0x1.e4bd16p-10f,
    0x1.493532p-12f, -0x1.c28a36p-11f, -0x1.7fe28cp-10f, -0x1.924574p-10f, -0x1.70c2bcp-10f, -0x1.27ff96p-10f, -0x1.b3eaa6p-11f, -0x1.2b3c68p-11f,
    -0x1.840f32p-12f, -0x1.db3772p-13f, -0x1.14a444p-13f, -0x1.351b5p-14f, -0x1.48cd52p-15f, -0x1.4bfc9ep-16f, -0x1.42aa48p-17f, -0x1.33cdd2p-18f,
};

/* 1 / (1 + e^a); to 2^-35 */
static const float falling_centre[] __attribute__((aligned(64), unused)) = {
    0x0p+0f, 0x1.f9804p-4f, 0x1.fb31b4p-3f, 0x1.823ccp-2f, 0x1.f9c1f8p-2f, 0x1.3eed6p-1f, 0x1.82544ap-1f, 0x1.c02c54p-1f,
    0x1.fbe0a6p-1f, 0x1.1ff862p+0f, 0x1.3cdac8p+0f, 0x1.5fe81ep+0f, 0x1.806ecep+0f, 0x1.9e005ap+0f, 0x1.bf356cp+0f, 0x1.e1017p+0f,
    0x1.ff521ap+0f, 0x1.1057cep+1f, 0x1.1e8848p+1f, 0x1.2fef86p+1f, 0x1.403cf4p+1f, 0x1.4fa136p+1f, 0x1.5fef1ep+1f, 0x1.6df008p+1f,
    0x1.7fe25cp+1f, 0x1.8f3352p+1f, 0x1.9f3934p+1f, 0x1.b08b54p+1f, 0x1.c0c544p+1f, 0x1.cedd8cp+1f, 0x1.df6deap+1f, 0x1.f02eeep+1f,
};
static const float falling_value[] __attribute__((aligned(64), unused)) = {
    0x1p-1f, 0x1.e0723cp-2f, 0x1.c0ec3cp-2f, 0x1.a091c4p-2f, 0x1.8411d8p-2f, 0x1.658p-2f, 0x1.4781bcp-2f, 0x1.2d3448p-2f,
    0x1.150524p-2f, 0x1.f5fa68p-3f, 0x1.cc75e8p-3f, 0x1.9d6f08p-3f, 0x1.75176p-3f, 0x1.532218p-3f, 0x1.3p-3f, 0x1.0f6278p-3f,
    0x1.e965cp-4f, 0x1.b3f5bp-4f, 0x1.8a9f1p-4f, 0x1.5cb9ep-4f, 0x1.362e7p-4f, 0x1.156b2p-4f, 0x1.ec77ep-5f, 0x1.bc336p-5f,
    0x1.84d9p-5f, 0x1.5adap-5f, 0x1.3392ap-5f, 0x1.0dedap-5f, 0x1.dd74p-6f, 0x1.acf9p-6f, 0x1.7a1acp-6f, __builtin_nanf(""),
};
static const float falling_slope[] __attribute__((aligned(64), unused)) = {
    -0x1p-2f, -0x1.fe0e2ep-3f, -0x1.f83aa2p-3f, -0x1.ee368p-3f, -0x1.e200a4p-3f, -0x1.d160ep-3f, -0x1.bd852p-3f, -0x1.a93692p-3f,
    -0x1.942838p-3f, -0x1.7af0a6p-3f, -0x1.64eeeap-3f, -0x1.49f91ap-3f, -0x1.311fbcp-3f, -0x1.1af9aep-3f, -0x1.02ep-3f, -0x1.d6d888p-4f,
    -0x1.aeec62p-4f, -0x1.858ee2p-4f, -0x1.649a3p-4f, -0x1.3f0942p-4f, -0x1.1eb128p-4f, -0x1.02a11p-4f, -0x1.cedcf8p-5f, -0x1.a41d4ep-5f,
    -0x1.7263ecp-5f, -0x1.4c2a7p-5f, -0x1.280658p-5f, -0x1.0508b6p-5f, -0x1.cf8a1ap-6f, -0x1.a1bdbap-6f, -0x1.7160f4p-6f, -0x1.45e76ap-6f,
};
static const float falling_rest_1[] __attribute__((aligned(64), unused)) = {
    -0x1.7d3ff8p-34f, 0x1.f6f15ap-8f, 0x1.f0f56cp-7f, 0x1.70760ep-6f, 0x1.d2ad6ap-6f, 0x1.18dcf6p-5f, 0x1.41136ap-5f, 0x1.5e2122p-5f,
    0x1.72f8ccp-5f, 0x1.825b7cp-5f, 0x1.88dcfcp-5f, 0x1.897f36p-5f, 0x1.83e7ecp-5f, 0x1.7a8434p-5f, 0x1.6c0bp-5f, 0x1.5a0f74p-5f,
    0x1.47f2c8p-5f, 0x1.32a1eep-5f, 0x1.1fe3d4p-5f, 0x1.08b63cp-5f, 0x1.e68aaep-6f, 0x1.bf31p-6f, 0x1.973662p-6f, 0x1.768ddcp-6f,
    0x1.4f3a56p-6f, 0x1.3009acp-6f, 0x1.11cbc6p-6f, 0x1.e7a9dep-7f, 0x1.b485e8p-7f, 0x1.8bddbep-7f, 0x1.605476p-7f, 0x1.38ab76p-7f,
};
static const float falling_rest_2[] __attribute__((aligned(64), unused)) = {
    0x1.55556p-6f, 0x1.502994p-6f, 0x1.40d8b4p-6f, 0x1.272316p-6f, 0x1.08dabcp-6f, 0x1.c2ffa6p-7f, 0x1.6aa29ep-7f, 0x1.16a5a4p-7f,
    0x1.8cba4cp-8f, 0x1.bd557ep-9f, 0x1.5bff2ap-10f, -0x1.d492cap-11f, -0x1.59429ep-9f, -0x1.02078ep-8f, -0x1.4d897ap-8f, -0x1.8596f6p-8f,
    -0x1.a7c1dep-8f, -0x1.be06d2p-8f, -0x1.c632ep-8f, -0x1.c52b4cp-8f, -0x1.bb72dep-8f, -0x1.ac645ap-8f, -0x1.97ee0ap-8f, -0x1.83cad4p-8f,
    -0x1.67e15p-8f, -0x1.4f239p-8f, -0x1.351f78p-8f, -0x1.1980fp-8f, -0x1.009168p-8f, -0x1.d7c782p-9f, -0x1.a9e22ep-9f, -0x1.7ead2cp-9f,
};
static const float falling_rest_3[] __attribute__((aligned(64), unused)) = {
    -0x1.76f938p-22f, -0x1.4d20fp-10f, -0x1.43845ap-9f, -0x1.d1576ap-9f, -0x1.1b98eep-8f, -0x1.4329b8p-8f, -0x1.587ebp-8f, -0x1.5bf894p-8f,
    -0x1.523368p-8f, -0x1.3a38cep-8f, -0x1.1dd9c8p-8f, -0x1.e9b4dp-9f, -0x1.97837ep-9f, -0x1.4c2f36p-9f, -0x1.f5d5dcp-10f, -0x1.5e667ap-10f,
    -0x1.cb40eep-11f, -0x1.cf33d4p-12f, -0x1.136adap-13f, 0x1.6e667ep-13f, 0x1.9eff44p-12f, 0x1.20c264p-11f, 0x1.5d659p-11f, 0x1.800d06p-11f,
    0x1.98be72p-11f, 0x1.a04868p-11f, 0x1.9d6276p-11f, 0x1.91864cp-11f, 0x1.80552ep-11f, 0x1.6e4988p-11f, 0x1.56aaa4p-11f, 0x1.3d4fa2p-11f,
};
static const float falling_rest_4[] __attribute__((aligned(64), unused)) = {
    -0x1.108364p-9f, -0x1.080a86p-9f, -0x1.dc8666p-10f, -0x1.8b5ef2p-10f, -0x1.29b5e2p-10f, -0x1.74ccc4p-11f, -0x1.271adap-12f, 0x1.8fba46p-14f,
    0x1.b29a3ep-12f, 0x1.657b56p-11f, 0x1.c699d2p-11f, 0x1.f99eb2p-11f, 0x1.05ccaap-10f, 0x1.0213d4p-10f, 0x1.e18d1ep-11f, 0x1.b1547ap-11f,
    0x1.7a3954p-11f, 0x1.3f1c74p-11f, 0x1.0577eap-11f, 0x1.9eb106p-12f, 0x1.3b5d94p-12f, 0x1.c5ce68p-13f, 0x1.33bc32p-13f, 0x1.78776ap-14f,
    0x1.5efc74p-15f, 0x1.6da092p-19f, -0x1.698d3cp-16f, -0x1.6eb702p-15f, -0x1.ee7eacp-15f, -0x1.16fa54p-14f, -0x1.2f8238p-14f, -0x1.3b295ep-14f,
};

/* 32/ln(2); ln(2)/32; floats b at about 2^(j/32): the bits of b less j << 18, and
 * log(b) - j ln(2)/32 and 0x1p-36 more */
#define PIECES_PER_UNIT 0x1.715476p+5f
#define LN2_PIECE_HIGH 0x1.62e43p-6f
#define LN2_PIECE_LOW -0x1.05c61p-34f
static const uint32_t piece_bits[] __attribute__((aligned(64), unused)) = {
    0x3F800000U, 0x3F7ECD87U, 0x3F7DAAC3U, 0x3F7C980FU,
    0x3F7B95C2U, 0x3F7AA43AU, 0x3F79C3D3U, 0x3F78F4F0U,
    0x3F7837F0U, 0x3F778D3AU, 0x3F76F532U, 0x3F767043U,
    0x3F75FED7U, 0x3F75A15BU, 0x3F75583FU, 0x3F7523F6U,
    0x3F7504F3U, 0x3F74FBAFU, 0x3F7508A4U, 0x3F752C4DU,
    0x3F75672AU, 0x3F75B9BEU, 0x3F76248CU, 0x3F76A81EU,
    0x3F7744FDU, 0x3F77FBB8U, 0x3F78CCDFU, 0x3F79B907U,
    0x3F7AC0C7U, 0x3F7BE4BAU, 0x3F7D257DU, 0x3F7E83B3U,
};
static const float piece_off[] __attribute__((aligned(64), unused)) = {
    0x1p-36f, 0x1.949416p-25f, -0x1.8d76d4p-25f, 0x1.ddc2fep-25f, 0x1.9c8c22p-27f, 0x1.a31bb4p-25f, -0x1.962902p-25f, 0x1.2b2dbcp-25f,
    -0x1.123002p-25f, 0x1.ce28cep-26f, -0x1.36ebe4p-25f, -0x1.2f6de2p-30f, 0x1.0a5552p-25f, 0x1.c581b6p-26f, 0x1.0158acp-27f, 0x1.6cd284p-25f,
    -0x1.25c55cp-26f, -0x1.8aebb8p-26f, 0x1.05eb44p-25f, 0x1.1c6142p-26f, -0x1.66a1cap-28f, 0x1.34ae56p-25f, -0x1.a2b5e4p-28f, 0x1.0b9ec8p-25f,
    0x1.fa4306p-27f, 0x1.e50886p-26f, 0x1.6a61b4p-28f, 0x1.b6151ep-28f, 0x1.a6217cp-28f, 0x1.abb132p-26f, -0x1.60428ep-28f, 0x1.2b55f8p-27f,
};

#endif
