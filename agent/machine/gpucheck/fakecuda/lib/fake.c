/*
 * A fake libcuda.so.1 for tests: GPUs whose memory is the host's, and which compute what the check's kernels compute.
 * The environment variable MUSTER_FAKE_CUDA names a file that says which GPUs there are and how they fail; in a
 * container it is the file gpus of the check's folder. Lines:
 *
 *   gpu UUID [UUID]              a GPU; or a MIG device, and the GPU that it is a part of
 *   model UUID NAME
 *   error FUNCTION CODE [UUID]   the function returns CODE (for this GPU)
 *   hang FUNCTION [UUID]         it does not return
 *   crash FUNCTION [UUID]        it ends the process
 *   wrong FUNCTION [UUID]        one bit of what it moves or computes is wrong; "peer": of what its kernels write to a
 *                                peer's memory
 *   slow UUID                    its kernels take twenty times as long
 *   nvswitch                     a GPU can have more than eight peers
 *   noaccess [UUID UUID]         GPUs, or these two, cannot address each other's memory
 *   slowlink UUID UUID           what the first sends to the second in a stream takes eight times as long
 *
 * The declarations are the check's own (agent/machine/gpucheck/cuda/driver.h).
 */
#include "../../cuda/driver.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GPUS = 16, MAX_FAULTS = 16, SMS = 4, CLOCK_KHZ = 10000, LINK_BYTES = 1000000000 /* a second */ };

struct CUctx_st { int gpu; bool peers[MAX_GPUS], dead; };
struct CUmod_st { int gpu; };
struct CUfunc_st { bool work; };

static char gpus[MAX_GPUS][64], parents[MAX_GPUS][64], models[MAX_GPUS][64];
static bool slow[MAX_GPUS], nvswitch;
static int gpu_count;
static bool no_access[MAX_GPUS][MAX_GPUS], slow_link[MAX_GPUS][MAX_GPUS];
static struct { char kind[8], function[40], gpu[64]; int code; } faults[MAX_FAULTS];
static int fault_count;
static bool initialised;
static __thread struct CUctx_st *current;

static void mark(bool pairs[MAX_GPUS][MAX_GPUS], const char *from, const char *to) {
	for (int i = 0; i < gpu_count; i++)
		for (int j = 0; j < gpu_count; j++)
			pairs[i][j] |= !*from || (!strcmp(gpus[i], from) && !strcmp(gpus[j], to));
}

__attribute__((constructor)) static void read_profile(void) {
	const char *path = getenv("MUSTER_FAKE_CUDA");
	FILE *f = fopen(path ? path : "/run/muster/gpucheck/gpus", "r");
	char line[256], a[64], b[64], c[64], d[64];
	while (f && fgets(line, sizeof line, f)) {
		a[0] = b[0] = c[0] = d[0] = 0;
		int n = sscanf(line, "%63s %63s %63s %63s", a, b, c, d);
		if (n >= 2 && !strcmp(a, "gpu") && gpu_count < MAX_GPUS) {
			strcpy(parents[gpu_count], *c ? c : b);
			strcpy(gpus[gpu_count++], b);
		} else if (n >= 1 && !strcmp(a, "nvswitch"))
			nvswitch = true;
		else if (n >= 1 && !strcmp(a, "noaccess")) {
			mark(no_access, b, c);
			mark(no_access, c, b);
		} else if (n >= 3 && !strcmp(a, "model")) {
			for (int i = 0; i < gpu_count; i++)
				if (!strcmp(gpus[i], b))
					strcpy(models[i], c);
		} else if (n >= 3 && !strcmp(a, "slowlink"))
			mark(slow_link, b, c);
		else if (n >= 2 && !strcmp(a, "slow")) {
			for (int i = 0; i < gpu_count; i++)
				slow[i] |= !strcmp(gpus[i], b);
		} else if (n >= 2 && fault_count < MAX_FAULTS) {
			bool error = !strcmp(a, "error");
			snprintf(faults[fault_count].kind, sizeof faults[0].kind, "%.7s", a);
			snprintf(faults[fault_count].function, sizeof faults[0].function, "%.39s", b);
			snprintf(faults[fault_count].gpu, sizeof faults[0].gpu, "%s", error ? d : c);
			faults[fault_count++].code = error ? atoi(c) : 0;
		}
	}
	if (f)
		fclose(f);
}

static bool has(const char *kind, const char *function, int gpu, int *code) {
	for (int i = 0; i < fault_count; i++)
		if (!strcmp(faults[i].kind, kind) && !strcmp(faults[i].function, function) &&
		    (!faults[i].gpu[0] || (gpu >= 0 && !strcmp(faults[i].gpu, gpus[gpu])))) {
			if (code)
				*code = faults[i].code;
			return true;
		}
	return false;
}

static muResult enter(const char *function, int gpu) {
	int code;
	if (has("hang", function, gpu, NULL))
		for (;;)
			pause();
	if (has("crash", function, gpu, NULL))
		abort();
	if (has("error", function, gpu, &code))
		return code;
	if (!initialised && strcmp(function, "cuInit") && strcmp(function, "cuDriverGetVersion"))
		return 3; /* CUDA_ERROR_NOT_INITIALIZED */
	return 0;
}

#define ENTER(gpu)                                                                                                     \
	do {                                                                                                           \
		muResult code_ = enter(__func__, gpu);                                                                 \
		if (code_)                                                                                             \
			return code_;                                                                                  \
	} while (0)
/* CUDA's exported names have a version; faults name functions without it. */
#define ENTER_AS(name, gpu)                                                                                            \
	do {                                                                                                           \
		muResult code_ = enter(name, gpu);                                                                     \
		if (code_)                                                                                             \
			return code_;                                                                                  \
	} while (0)
#define HERE (current ? current->gpu : -1)
#define NEED_CONTEXT                                                                                                   \
	if (!current)                                                                                                  \
	return 201 /* CUDA_ERROR_INVALID_CONTEXT */

muInit cuInit;
muResult cuInit(unsigned int flags) {
	ENTER(-1);
	if (flags)
		return 1;
	if (gpu_count == 0)
		return 100; /* CUDA_ERROR_NO_DEVICE */
	initialised = true;
	return 0;
}

muDriverGetVersion cuDriverGetVersion;
muResult cuDriverGetVersion(int *version) {
	ENTER(-1);
	*version = 12040;
	return 0;
}

static const struct { int code; const char *name, *text; } errors[] = {
	{0, "CUDA_SUCCESS", "no error"},
	{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
	{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
	{711, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
	{804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
	 "forward compatibility was attempted on non supported HW"},
	{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static muResult describe(muResult error, const char **text, bool name) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == error) {
			*text = name ? errors[i].name : errors[i].text;
			return 0;
		}
	*text = NULL;
	return 1;
}

muGetErrorName cuGetErrorName;
muResult cuGetErrorName(muResult error, const char **text) { return describe(error, text, true); }

muGetErrorString cuGetErrorString;
muResult cuGetErrorString(muResult error, const char **text) { return describe(error, text, false); }

muDeviceGetCount cuDeviceGetCount;
muResult cuDeviceGetCount(int *count) {
	ENTER(-1);
	*count = gpu_count;
	return 0;
}

muDeviceGet cuDeviceGet;
muResult cuDeviceGet(muDevice *device, int ordinal) {
	ENTER(-1);
	if (ordinal < 0 || ordinal >= gpu_count)
		return 101;
	*device = ordinal;
	return 0;
}

muDeviceGetName cuDeviceGetName;
muResult cuDeviceGetName(char *name, int size, muDevice device) {
	ENTER(device);
	snprintf(name, (size_t)size, "Fake GPU %s", models[device]);
	return 0;
}

static void read_uuid(const char *s, muUUID *uuid) {
	s += 4; /* after "GPU-" */
	for (int i = 0; i < 16; i++) {
		if (*s == '-')
			s++;
		unsigned int byte = 0;
		sscanf(s, "%2x", &byte);
		uuid->bytes[i] = (char)byte;
		s += 2;
	}
}

/* Of a MIG device it returns the UUID of the GPU. */
muDeviceGetUuid cuDeviceGetUuid;
muResult cuDeviceGetUuid(muUUID *uuid, muDevice device) {
	ENTER(device);
	read_uuid(parents[device], uuid);
	return 0;
}

muDeviceGetUuid cuDeviceGetUuid_v2;
muResult cuDeviceGetUuid_v2(muUUID *uuid, muDevice device) {
	ENTER_AS("cuDeviceGetUuid", device);
	read_uuid(gpus[device], uuid);
	return 0;
}

muDeviceGetAttribute cuDeviceGetAttribute;
muResult cuDeviceGetAttribute(int *value, muAttribute attribute, muDevice device) {
	ENTER(device);
	switch (attribute) {
	case MU_ATTRIBUTE_CLOCK_RATE: *value = CLOCK_KHZ; break;
	case MU_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = SMS; break;
	case MU_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: *value = 0; break;
	case MU_ATTRIBUTE_COMPUTE_MODE: *value = 0; break;
	case MU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
	case MU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
	default: return 1;
	}
	return 0;
}

muCtxCreate cuCtxCreate_v2;
muResult cuCtxCreate_v2(muContext *context, unsigned int flags, muDevice device) {
	ENTER_AS("cuCtxCreate", device);
	(void)flags;
	*context = calloc(1, sizeof **context);
	(*context)->gpu = device;
	current = *context;
	return 0;
}

muDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain;
muResult cuDevicePrimaryCtxRetain(muContext *context, muDevice device) {
	static struct CUctx_st primary[MAX_GPUS];
	ENTER(device);
	primary[device].gpu = device;
	*context = &primary[device];
	return 0;
}

muCtxDestroy cuCtxDestroy_v2;
muResult cuCtxDestroy_v2(muContext context) {
	ENTER_AS("cuCtxDestroy", context->gpu);
	free(context);
	return 0;
}

muCtxSetCurrent cuCtxSetCurrent;
muResult cuCtxSetCurrent(muContext context) {
	ENTER(context->gpu);
	current = context;
	return 0;
}

muCtxSynchronize cuCtxSynchronize;
muResult cuCtxSynchronize(void) {
	NEED_CONTEXT;
	ENTER(HERE);
	return current->dead ? 700 : 0;
}

/* Where the memory of each GPU is. What is freed stays in the list: nothing uses it. */
static struct { uintptr_t start; size_t bytes; int gpu; } memory[4096];
static int memory_count;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static int owner_of(muPointer pointer) {
	int gpu = -1;
	pthread_mutex_lock(&memory_lock);
	for (int i = memory_count - 1; i >= 0 && gpu < 0; i--)
		if (pointer >= memory[i].start && pointer < memory[i].start + memory[i].bytes)
			gpu = memory[i].gpu;
	pthread_mutex_unlock(&memory_lock);
	return gpu;
}

muMemAlloc cuMemAlloc_v2;
muResult cuMemAlloc_v2(muPointer *pointer, size_t bytes) {
	NEED_CONTEXT;
	ENTER_AS("cuMemAlloc", HERE);
	*pointer = (muPointer)(uintptr_t)malloc(bytes);
	if (!*pointer)
		return 2;
	pthread_mutex_lock(&memory_lock);
	if (memory_count < (int)(sizeof memory / sizeof *memory)) {
		memory[memory_count].start = (uintptr_t)*pointer;
		memory[memory_count].bytes = bytes;
		memory[memory_count++].gpu = HERE;
	}
	pthread_mutex_unlock(&memory_lock);
	return 0;
}

muMemFree cuMemFree_v2;
muResult cuMemFree_v2(muPointer pointer) {
	NEED_CONTEXT;
	ENTER_AS("cuMemFree", HERE);
	free((void *)(uintptr_t)pointer);
	return 0;
}

static void move(const char *function, int gpu, void *to, const void *from, size_t bytes) {
	memcpy(to, from, bytes);
	if (has("wrong", function, gpu, NULL))
		((char *)to)[bytes / 2] ^= 4;
}

muMemcpyHtoD cuMemcpyHtoD_v2;
muResult cuMemcpyHtoD_v2(muPointer to, const void *from, size_t bytes) {
	NEED_CONTEXT;
	ENTER_AS("cuMemcpyHtoD", HERE);
	move("cuMemcpyHtoD", HERE, (void *)(uintptr_t)to, from, bytes);
	return 0;
}

muMemcpyDtoH cuMemcpyDtoH_v2;
muResult cuMemcpyDtoH_v2(void *to, muPointer from, size_t bytes) {
	NEED_CONTEXT;
	ENTER_AS("cuMemcpyDtoH", HERE);
	move("cuMemcpyDtoH", HERE, to, (const void *)(uintptr_t)from, bytes);
	return 0;
}

muMemcpyPeer cuMemcpyPeer;
muResult cuMemcpyPeer(muPointer to, muContext to_context, muPointer from, muContext from_context, size_t bytes) {
	ENTER(to_context->gpu);
	ENTER(from_context->gpu);
	move("cuMemcpyPeer", to_context->gpu, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
	return 0;
}

/*
 * Each stream has a clock, which only what it sends moves: events show the same time however busy the machine
 * is. What it sends again to the same place is not moved again.
 */
struct CUstream_st { int gpu; double clock; const void *from; };
struct CUevent_st { double at; };

muStreamCreate cuStreamCreate;
muResult cuStreamCreate(muStream *stream, unsigned int flags) {
	NEED_CONTEXT;
	ENTER(HERE);
	if (flags != MU_STREAM_NON_BLOCKING)
		return 1;
	*stream = calloc(1, sizeof **stream);
	(*stream)->gpu = HERE;
	return 0;
}

muMemcpyPeerAsync cuMemcpyPeerAsync;
muResult cuMemcpyPeerAsync(muPointer to, muContext to_context, muPointer from, muContext from_context, size_t bytes,
                           muStream stream) {
	ENTER(to_context->gpu);
	ENTER(from_context->gpu);
	if (stream->gpu != from_context->gpu)
		return 400; /* CUDA_ERROR_INVALID_HANDLE */
	const void *source = (const void *)(uintptr_t)from;
	if (stream->from != source)
		move("cuMemcpyPeerAsync", to_context->gpu, (void *)(uintptr_t)to, source, bytes);
	stream->from = source;
	bool direct = from_context->peers[to_context->gpu] && !slow_link[from_context->gpu][to_context->gpu];
	stream->clock += (double)bytes / LINK_BYTES * (direct ? 1 : 8); /* or by the host's memory */
	return 0;
}

muStreamSynchronize cuStreamSynchronize;
muResult cuStreamSynchronize(muStream stream) {
	ENTER(stream->gpu);
	return 0;
}

muEventCreate cuEventCreate;
muResult cuEventCreate(muEvent *event, unsigned int flags) {
	NEED_CONTEXT;
	ENTER(HERE);
	*event = calloc(1, sizeof **event);
	return flags ? 1 : 0;
}

muEventRecord cuEventRecord;
muResult cuEventRecord(muEvent event, muStream stream) {
	ENTER(stream->gpu);
	event->at = stream->clock;
	return 0;
}

muEventElapsedTime cuEventElapsedTime;
muResult cuEventElapsedTime(float *milliseconds, muEvent start, muEvent end) {
	ENTER(-1);
	*milliseconds = (float)(1e3 * (end->at - start->at));
	return 0;
}

muDeviceCanAccessPeer cuDeviceCanAccessPeer;
muResult cuDeviceCanAccessPeer(int *can, muDevice device, muDevice peer) {
	ENTER(device);
	*can = !no_access[device][peer] && device != peer;
	return 0;
}

muCtxEnablePeerAccess cuCtxEnablePeerAccess;
muResult cuCtxEnablePeerAccess(muContext peer, unsigned int flags) {
	NEED_CONTEXT;
	ENTER(HERE);
	int count = 0;
	for (int i = 0; i < MAX_GPUS; i++)
		count += current->peers[i];
	if (flags || peer->gpu == HERE || no_access[HERE][peer->gpu])
		return 1;
	if (current->peers[peer->gpu])
		return MU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	if (count >= 8 && !nvswitch)
		return MU_ERROR_TOO_MANY_PEERS;
	current->peers[peer->gpu] = true;
	return 0;
}

muCtxDisablePeerAccess cuCtxDisablePeerAccess;
muResult cuCtxDisablePeerAccess(muContext peer) {
	NEED_CONTEXT;
	ENTER(HERE);
	if (!current->peers[peer->gpu])
		return 705; /* CUDA_ERROR_PEER_ACCESS_NOT_ENABLED */
	current->peers[peer->gpu] = false;
	return 0;
}

muModuleLoadData cuModuleLoadData;
muResult cuModuleLoadData(muModule *module, const void *image) {
	NEED_CONTEXT;
	ENTER(HERE);
	if (!strstr(image, ".entry fill(") || !strstr(image, ".entry work("))
		return 218; /* CUDA_ERROR_INVALID_PTX */
	*module = calloc(1, sizeof **module);
	(*module)->gpu = HERE;
	return 0;
}

muModuleGetFunction cuModuleGetFunction;
muResult cuModuleGetFunction(muFunction *function, muModule module, const char *name) {
	ENTER(module->gpu);
	if (strcmp(name, "fill") && strcmp(name, "work"))
		return 500; /* CUDA_ERROR_NOT_FOUND */
	*function = calloc(1, sizeof **function);
	(*function)->work = !strcmp(name, "work");
	return 0;
}

static void compute(uint32_t *out, unsigned int all, unsigned int rounds) {
	for (uint32_t low = 0; low < 256 && low < all; low++) {
		uint32_t x = low, bits;
		float a = 0x1.ff7ceep-1f, b = 0x1.0624dep-10f, f[4];
		for (int k = 0; k < 4; k++)
			f[k] = (float)(low + (uint32_t)k);
		for (unsigned int r = 0; r < rounds; r++) {
			x = x * 1664525u + 1013904223u;
			if (r < 64) /* enough for values that differ */
				for (int k = 0; k < 4; k++)
					f[k] = fmaf(f[k], a, b);
		}
		float sum = f[0] + f[1] + (f[2] + f[3]);
		memcpy(&bits, &sum, sizeof bits);
		for (uint32_t i = low; i < all; i += 256)
			out[2 * i] = x, out[2 * i + 1] = bits;
	}
}

muLaunchKernel cuLaunchKernel;
muResult cuLaunchKernel(muFunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        muStream stream, void **parameters, void **extra) {
	NEED_CONTEXT;
	ENTER(HERE);
	(void)shared_bytes, (void)stream, (void)extra;
	unsigned int all = grid_x * grid_y * grid_z * block_x * block_y * block_z;
	uint32_t *out = (uint32_t *)(uintptr_t) * (muPointer *)parameters[0];
	if (function->work) {
		unsigned int rounds = *(unsigned int *)parameters[1];
		compute(out, all, rounds);
		if (has("wrong", "work", HERE, NULL))
			out[2 * (all / 2) + 1] ^= 4;
		if (has("wrong", "integers", HERE, NULL))
			out[2 * (all / 2)] ^= 4;
		/* as long as SMS multiprocessors with 128 lanes take at CLOCK_KHZ, at 58 % of their peak as on an H200 */
		double seconds = 4.0 * rounds * all / (0.58 * 128 * SMS * CLOCK_KHZ * 1e3) * (slow[HERE] ? 20 : 1);
		struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
		nanosleep(&t, NULL);
		return 0;
	}
	unsigned int count = *(unsigned int *)parameters[1], seed = *(unsigned int *)parameters[2];
	int owner = owner_of(*(muPointer *)parameters[0]);
	if (owner != HERE) {
		muResult code = enter("peer", HERE);
		if (code)
			return code;
		if (owner < 0 || !current->peers[owner]) {
			current->dead = true;
			return 0;
		}
	}
	for (unsigned int i = 0; i < count && i < all; i++)
		out[i] = (i ^ seed) * 2654435761u;
	if (has("wrong", "fill", HERE, NULL) || (owner != HERE && has("wrong", "peer", HERE, NULL)))
		out[count / 2] ^= 4;
	return 0;
}
