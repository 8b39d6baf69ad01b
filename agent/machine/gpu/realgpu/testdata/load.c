/*
 * A program that uses the first GPU as a renter's may, well or badly. The tests in this folder run it on real devices.
 * Usage: load busy SECONDS | hold GIB | pin GIB | fill | store | trap | endless
 * It prints "ready" once it does what it is there for, and "call: code" for a call that fails.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../../../gpucheck/cuda/driver.h"

#define X(name, symbol, parameters) static mu##name *q##name;
MU_FUNCTIONS(X)
#undef X
static muResult (*qMemHostAlloc)(void **, size_t, unsigned);
static muResult (*qMemGetInfo)(size_t *, size_t *);

static const char kernels[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry spin(.param .u32 rounds) {\n"
	"	.reg .pred %p; .reg .u32 %r<4>; .reg .f32 %f<4>;\n"
	"	ld.param.u32 %r0, [rounds]; mov.u32 %r1, 0; mov.f32 %f0, 0f3F800000;\n"
	"again:	fma.rn.f32 %f0, %f0, 0f3F7FBE77, 0f3A83126F; add.u32 %r1, %r1, 1;\n"
	"	setp.ne.u32 %p, %r1, %r0; @%p bra again;\n"
	"	setp.gt.f32 %p, %f0, 0f7F000000; @%p trap; ret; }\n"
	".visible .entry store(.param .u32 x) {\n"
	"	.reg .u64 %d; .reg .u32 %r; ld.param.u32 %r, [x];\n"
	"	mov.u64 %d, 0x7f00dead0000; st.global.u32 [%d], %r; ret; }\n"
	".visible .entry stop(.param .u32 x) { trap; ret; }\n"
	".visible .entry fill(.param .u64 out, .param .u64 words, .param .u32 seed, .param .u64 wrong) {\n"
	"	.reg .pred %p; .reg .u32 %r<9>; .reg .u64 %d<8>;\n"
	"	ld.param.u64 %d0, [out]; ld.param.u64 %d1, [words]; ld.param.u32 %r0, [seed]; ld.param.u64 %d2, [wrong];\n"
	"	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
	"	mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r2; cvt.u64.u32 %d3, %r4; cvt.u64.u32 %d4, %r5;\n"
	"more:	setp.ge.u64 %p, %d3, %d1; @%p bra done;\n"
	"	cvt.u32.u64 %r6, %d3; xor.b32 %r6, %r6, %r0; mul.lo.u32 %r6, %r6, 2654435761;\n"
	"	mad.lo.u64 %d5, %d3, 4, %d0;\n"
	"	setp.eq.u64 %p, %d2, 0; @%p bra write;\n"
	"	ld.global.u32 %r7, [%d5]; setp.eq.u32 %p, %r7, %r6; @%p bra next; atom.global.add.u32 %r8, [%d2], 1; bra next;\n"
	"write:	st.global.u32 [%d5], %r6;\n"
	"next:	add.u64 %d3, %d3, %d4; bra more;\n"
	"done:	ret; }\n";

static void check(const char *call, muResult code)
{
	if (code) {
		printf("%s: %d\n", call, code);
		exit(1);
	}
}
#define DO(call, ...) check("cu" #call, q##call(__VA_ARGS__))

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static muFunction function(muModule m, const char *name)
{
	muFunction f;
	DO(ModuleGetFunction, &f, m, name);
	return f;
}

static void launch(muFunction f, unsigned blocks, void **parameters)
{
	DO(LaunchKernel, f, blocks, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
}

/* fill writes and reads nine tenths of the GPU's free memory, and prints how long each took. */
static void fill(muModule m)
{
	size_t available, total;
	DO(MemGetInfo, &available, &total);
	size_t bytes = available / 10 * 9 & ~(size_t)0xfffff;
	muPointer at, wrong, none = 0;
	DO(MemAlloc, &at, bytes);
	DO(MemAlloc, &wrong, 4);
	uint32_t seed = (uint32_t)getpid(), zero = 0;
	DO(MemcpyHtoD, wrong, &zero, 4);
	unsigned long long words = bytes / 4;
	muFunction f = function(m, "fill");
	double began = seconds();
	launch(f, 4096, (void *[]){&at, &words, &seed, &none});
	DO(CtxSynchronize);
	double wrote = seconds();
	launch(f, 4096, (void *[]){&at, &words, &seed, &wrong});
	DO(CtxSynchronize);
	double ended = seconds();
	DO(MemcpyDtoH, &zero, wrong, 4);
	printf("{\"gib\": %.1f, \"write_s\": %.3f, \"read_s\": %.3f, \"wrong\": %u}\n", bytes / 1073741824.0, wrote - began,
	       ended - wrote, zero);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	const char *mode = argv[1];
	double amount = argc > 2 ? atof(argv[2]) : 0;
	void *library = dlopen(getenv("MUSTER_CUDA_LIBRARY") ? getenv("MUSTER_CUDA_LIBRARY") : "libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
#define X(name, symbol, parameters) q##name = (mu##name *)dlsym(library, #symbol);
	MU_FUNCTIONS(X)
#undef X
	*(void **)&qMemHostAlloc = dlsym(library, "cuMemHostAlloc");
	*(void **)&qMemGetInfo = dlsym(library, "cuMemGetInfo_v2");
	muDevice device;
	muContext context;
	muModule module;
	DO(Init, 0);
	DO(DeviceGet, &device, 0);
	DO(CtxCreate, &context, MU_CTX_SCHED_BLOCKING_SYNC, device);
	DO(ModuleLoadData, &module, kernels);
	unsigned rounds = 1 << 20;
	if (!strcmp(mode, "busy")) {
		muFunction f = function(module, "spin");
		puts("ready");
		for (double until = seconds() + amount; seconds() < until;) {
			launch(f, 4096, (void *[]){&rounds});
			DO(CtxSynchronize);
		}
	} else if (!strcmp(mode, "hold")) {
		muPointer at;
		DO(MemAlloc, &at, (size_t)(amount * 1073741824));
		puts("ready");
		pause();
	} else if (!strcmp(mode, "pin")) {
		void *at;
		DO(MemHostAlloc, &at, (size_t)(amount * 1073741824), 0);
		puts("ready");
		pause();
	} else if (!strcmp(mode, "fill")) {
		fill(module);
	} else if (!strcmp(mode, "store") || !strcmp(mode, "trap")) {
		launch(function(module, strcmp(mode, "trap") ? "store" : "stop"), 1, (void *[]){&rounds});
		puts("ready");
		DO(CtxSynchronize);
	} else if (!strcmp(mode, "endless")) {
		rounds = 0xffffffff;
		for (int i = 0; i < 64; i++)
			launch(function(module, "spin"), 65535, (void *[]){&rounds});
		puts("ready");
		DO(CtxSynchronize);
	} else {
		return 2;
	}
	return 0;
}
