/*
 * The part of the CUDA driver API that the check uses. The library libcuda.so.1 is opened at run time, so nothing of
 * CUDA is needed to build; these declarations have to agree with NVIDIA's cuda.h, and TestDeclarations compares them
 * with a public header where there is one. The fake library (agent/machine/gpucheck/fakecuda) is built from this file
 * too.
 */
#ifndef MUSTER_CUDA_DRIVER_H
#define MUSTER_CUDA_DRIVER_H

#include <stddef.h>

#ifdef MU_HEADER /* TestDeclarations: a header of CUDA was included; its enums are passed as int */
typedef CUresult muResult;
typedef CUdevice_attribute muAttribute;
typedef CUuuid muUUID;
#else
typedef int muResult;
typedef int muAttribute;
typedef struct { char bytes[16]; } muUUID;
#endif
typedef int muDevice;
typedef unsigned long long muPointer;
typedef struct CUctx_st *muContext;
typedef struct CUmod_st *muModule;
typedef struct CUfunc_st *muFunction;
typedef struct CUstream_st *muStream;
typedef struct CUevent_st *muEvent;

enum {
	MU_CTX_SCHED_BLOCKING_SYNC = 4,
	MU_STREAM_NON_BLOCKING = 1,
	MU_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
	MU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	MU_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
	MU_ATTRIBUTE_COMPUTE_MODE = 20,
	MU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	MU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};

enum {
	MU_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	MU_ERROR_TOO_MANY_PEERS = 711,
};

/* X(function without "cu", exported symbol, parameters) */
#define MU_FUNCTIONS(X)                                                                                                \
	X(Init, cuInit, (unsigned int flags))                                                                          \
	X(DriverGetVersion, cuDriverGetVersion, (int *version))                                                        \
	X(GetErrorName, cuGetErrorName, (muResult error, const char **text))                                           \
	X(GetErrorString, cuGetErrorString, (muResult error, const char **text))                                       \
	X(DeviceGetCount, cuDeviceGetCount, (int *count))                                                              \
	X(DeviceGet, cuDeviceGet, (muDevice *device, int ordinal))                                                     \
	X(DeviceGetName, cuDeviceGetName, (char *name, int size, muDevice device))                                     \
	X(DeviceGetUuid, cuDeviceGetUuid, (muUUID *uuid, muDevice device))                                             \
	X(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, muAttribute attribute, muDevice device))              \
	X(CtxCreate, cuCtxCreate_v2, (muContext *context, unsigned int flags, muDevice device))                        \
	X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (muContext *context, muDevice device))                     \
	X(CtxDestroy, cuCtxDestroy_v2, (muContext context))                                                            \
	X(CtxSetCurrent, cuCtxSetCurrent, (muContext context))                                                         \
	X(CtxSynchronize, cuCtxSynchronize, (void))                                                                    \
	X(MemAlloc, cuMemAlloc_v2, (muPointer *pointer, size_t bytes))                                                 \
	X(MemFree, cuMemFree_v2, (muPointer pointer))                                                                  \
	X(MemcpyHtoD, cuMemcpyHtoD_v2, (muPointer to, const void *from, size_t bytes))                                 \
	X(MemcpyDtoH, cuMemcpyDtoH_v2, (void *to, muPointer from, size_t bytes))                                       \
	X(MemcpyPeer, cuMemcpyPeer,                                                                                    \
	  (muPointer to, muContext to_context, muPointer from, muContext from_context, size_t bytes))                  \
	X(MemcpyPeerAsync, cuMemcpyPeerAsync,                                                                          \
	  (muPointer to, muContext to_context, muPointer from, muContext from_context, size_t bytes, muStream stream)) \
	X(StreamCreate, cuStreamCreate, (muStream *stream, unsigned int flags))                                        \
	X(StreamSynchronize, cuStreamSynchronize, (muStream stream))                                                   \
	X(EventCreate, cuEventCreate, (muEvent *event, unsigned int flags))                                            \
	X(EventRecord, cuEventRecord, (muEvent event, muStream stream))                                                \
	X(EventElapsedTime, cuEventElapsedTime, (float *milliseconds, muEvent start, muEvent end))                     \
	X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *can, muDevice device, muDevice peer))                      \
	X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (muContext peer, unsigned int flags))                            \
	X(CtxDisablePeerAccess, cuCtxDisablePeerAccess, (muContext peer))                                              \
	X(ModuleLoadData, cuModuleLoadData, (muModule *module, const void *image))                                     \
	X(ModuleGetFunction, cuModuleGetFunction, (muFunction *function, muModule module, const char *name))           \
	X(LaunchKernel, cuLaunchKernel,                                                                                \
	  (muFunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,   \
	   unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, muStream stream, void **parameters,  \
	   void **extra))

#define X(name, symbol, parameters) typedef muResult mu##name parameters;
MU_FUNCTIONS(X)
#undef X

#endif
