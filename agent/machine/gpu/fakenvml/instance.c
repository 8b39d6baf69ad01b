/*
 * MIG: the devices of a GPU that is split, and how they are destroyed and recreated. What happened to one since the
 * profile was written lies in PROFILE.mig-UUID, so that it outlives the probe: "STAGE REMADE".
 */
#include "fake.h"

#include <stdio.h>
#include <string.h>

/* nvml.h says of these that they take the handle of a MIG device; a test looks it up there. */
static const char *const takers[] = {
	"nvmlDeviceGetUUID",
	"nvmlDeviceGetName",
	"nvmlDeviceGetMemoryInfo",
	"nvmlDeviceGetMemoryInfo_v2",
	"nvmlDeviceGetComputeRunningProcesses_v3",
	"nvmlDeviceGetComputeRunningProcesses_v2",
	"nvmlDeviceGetComputeRunningProcesses",
	"nvmlDeviceGetGraphicsRunningProcesses_v3",
	"nvmlDeviceGetGraphicsRunningProcesses_v2",
	"nvmlDeviceGetGraphicsRunningProcesses",
	"nvmlDeviceIsMigDeviceHandle",
	"nvmlDeviceGetGpuInstanceId",
	"nvmlDeviceGetComputeInstanceId",
	"nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
	"nvmlDeviceGetAttributes_v2",
};

bool fake_takes_instances(const char *function) {
	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
		if (!strcmp(takers[i], function))
			return true;
	return false;
}

static bool state_file(const struct gpu *g, int instance, char *path, size_t size) {
	const char *profile = profile_path();
	return profile && snprintf(path, size, "%s.mig-%s", profile, g->instances[instance].uuid) < (int)size;
}

struct instance_state fake_instance_state(const struct gpu *g, int instance) {
	struct instance_state st = {0, 0};
	char path[4096];
	FILE *f = state_file(g, instance, path, sizeof path) ? fopen(path, "re") : NULL;
	if (!f)
		return st;
	if (fscanf(f, "%d %d", &st.stage, &st.remade) != 2)
		st.stage = st.remade = 0;
	fclose(f);
	return st;
}

static nvmlReturn_t set_state(const struct gpu *g, int instance, struct instance_state st) {
	char path[4096];
	FILE *f = state_file(g, instance, path, sizeof path) ? fopen(path, "we") : NULL;
	if (!f)
		return NVML_ERROR_UNKNOWN;
	fprintf(f, "%d %d\n", st.stage, st.remade);
	return fclose(f) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

/* Eighths of the GPU's memory. */
static unsigned int eighths(const struct gpu *g, const struct gpu_instance *in) {
	unsigned int n = (unsigned int)((in->memory_mib * 8 + g->memory_mib / 2) / g->memory_mib);
	return n ? n : 1;
}

int fake_slices(const struct gpu *g, const struct gpu_instance *in) {
	unsigned int n = eighths(g, in);
	return n == 8 ? 7 : n == 4 ? 3 : (int)n;
}

static unsigned int start_of(const struct gpu *g, int instance) {
	unsigned int at = 0;
	for (int i = 0; i < instance; i++)
		at += eighths(g, &g->instances[i]);
	return at;
}

/* The ids of an A100's profiles, by slices. */
static unsigned int profile_of(const struct gpu *g, int instance) {
	switch (fake_slices(g, &g->instances[instance])) {
	case 1: return 19;
	case 2: return 14;
	case 3: return 9;
	default: return 0;
	}
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
	ENTER(device);
	*count = g.mig < 0 ? 0 : MAX_INSTANCES;
	return NVML_SUCCESS;
}

/* Indexes of instances that were not made answer NOT_FOUND. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
	ENTER(device);
	if (g.mig < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (index >= MAX_INSTANCES)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (g.mig != 1 || (int)index >= g.instance_count || fake_instance_state(&g, (int)index).stage > 0)
		return NVML_ERROR_NOT_FOUND;
	*instance = fake_instance_handle(fake_slot(device), (int)index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
	ENTER(device);
	*is = fake_instance(device) >= 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device) {
	ENTER(instance);
	if (fake_instance(instance) < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = fake_handle(fake_slot(instance));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
	ENTER(device);
	if (fake_instance(device) < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = (unsigned int)fake_instance(device) + 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
	ENTER(device);
	if (fake_instance(device) < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = 0;
	return NVML_SUCCESS;
}

/* nvml.h: "currently only supports MIG device handles" */
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
	ENTER(device);
	if (fake_instance(device) < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	const struct gpu_instance *in = &g.instances[fake_instance(device)];
	memset(attributes, 0, sizeof *attributes);
	attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = (unsigned int)fake_slices(&g, in);
	attributes->multiprocessorCount = 14 * attributes->gpuInstanceSliceCount;
	attributes->memorySizeMB = (unsigned long long)in->memory_mib;
	return NVML_SUCCESS;
}

/* Handles of a GPU instance and of its compute instance are that of their MIG device, of another type. */
static nvmlDevice_t device_of(const void *handle) { return (nvmlDevice_t){(void *)(size_t)handle}; }

/* As ENTER, for a GPU instance or a compute instance, of which the MIG device may be destroyed. */
#define ENTER_INSTANCE(handle)                                                                                         \
	struct gpu g;                                                                                                  \
	int slot = fake_slot(device_of(handle)), in = fake_instance(device_of(handle));                                \
	{                                                                                                              \
		nvmlReturn_t entered = slot < 0 || in < 0 ? NVML_ERROR_INVALID_ARGUMENT                                 \
							  : fake_enter(fake_handle(slot), __func__, &g);               \
		if (entered != NVML_SUCCESS)                                                                           \
			return entered;                                                                                \
		if (g.mig != 1 || in >= g.instance_count)                                                              \
			return NVML_ERROR_INVALID_ARGUMENT;                                                            \
	}                                                                                                              \
	struct instance_state st = fake_instance_state(&g, in)

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out) {
	ENTER(device);
	if (g.mig != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	int in = (int)id - 1;
	if (in < 0 || in >= g.instance_count || fake_instance_state(&g, in).stage > 1)
		return NVML_ERROR_NOT_FOUND;
	out->handle = (void *)fake_instance_handle(fake_slot(device), in).handle;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
	ENTER_INSTANCE(instance.handle);
	if (st.stage > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	info->device = fake_handle(slot);
	info->id = (unsigned int)in + 1;
	info->profileId = profile_of(&g, in);
	info->placement.start = start_of(&g, in);
	info->placement.size = eighths(&g, &g.instances[in]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *out) {
	ENTER_INSTANCE(instance.handle);
	if (id != 0 || st.stage > 0)
		return NVML_ERROR_NOT_FOUND;
	out->handle = (void *)instance.handle;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
	ENTER_INSTANCE(instance.handle);
	if (st.stage > 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(info, 0, sizeof *info);
	info->device = fake_handle(slot);
	info->gpuInstance.handle = (void *)instance.handle;
	info->profileId = (unsigned int)fake_slices(&g, &g.instances[in]) - 1;
	info->placement.size = (unsigned int)fake_slices(&g, &g.instances[in]);
	return NVML_SUCCESS;
}

/* "This instance is in use": by a process, or for a GPU instance by its compute instance. */
nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance) {
	ENTER_INSTANCE(instance.handle);
	struct process ps[MAX_PROCESSES];
	if (st.stage > 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (fake_processes(g.instances[in].uuid, ps, MAX_PROCESSES) > 0)
		return NVML_ERROR_IN_USE;
	st.stage = 1;
	return set_state(&g, in, st);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
	ENTER_INSTANCE(instance.handle);
	if (st.stage != 1)
		return st.stage == 0 ? NVML_ERROR_IN_USE : NVML_ERROR_INVALID_ARGUMENT;
	st.stage = 2;
	return set_state(&g, in, st);
}

/* There is room where a GPU instance of this profile was destroyed, and nowhere else. */
nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile,
						      const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *out) {
	ENTER(device);
	if (g.mig != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	for (int in = 0; in < g.instance_count; in++) {
		struct instance_state st = fake_instance_state(&g, in);
		if (st.stage != 2 || profile_of(&g, in) != profile || start_of(&g, in) != placement->start)
			continue;
		st.stage = 1;
		st.remade++;
		out->handle = (void *)fake_instance_handle(fake_slot(device), in).handle;
		return set_state(&g, in, st);
	}
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile, nvmlComputeInstance_t *out) {
	ENTER_INSTANCE(instance.handle);
	if (st.stage != 1 || profile != (unsigned int)fake_slices(&g, &g.instances[in]) - 1)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	st.stage = 0;
	out->handle = (void *)instance.handle;
	return set_state(&g, in, st);
}
