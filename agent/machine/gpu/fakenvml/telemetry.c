/* What a GPU does now: load, memory, power, energy, temperature, processes. */
#include "fake.h"

#include <stddef.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
	ENTER(device);
	if (g.mig == 1) /* nvml.h: not supported while MIG is on, of the GPU or its instances */
		return NVML_ERROR_NOT_SUPPORTED;
	utilization->gpu = (unsigned int)fake_load(&g, fake_now_ms());
	utilization->memory = utilization->gpu / 2;
	return NVML_SUCCESS;
}

/* Bytes, without what the driver reserves. */
static unsigned long long used_by(const struct gpu *g, int instance) {
	struct process ps[MAX_PROCESSES];
	const struct gpu_instance *in = &g->instances[instance];
	int n = fake_processes(in->uuid, ps, MAX_PROCESSES);
	long long mib = 0;
	for (int i = 0; i < n; i++)
		mib += ps[i].memory_mib;
	return (unsigned long long)(mib > in->memory_mib ? in->memory_mib : mib) << 20;
}

static unsigned long long used_bytes(const struct gpu *g) {
	struct process ps[MAX_PROCESSES];
	int n = fake_processes(g->uuid, ps, MAX_PROCESSES);
	long long mib = g->stuck_mib + 1;
	for (int i = 0; i < n; i++)
		mib += ps[i].memory_mib;
	if (mib > g->memory_mib - g->reserved_mib)
		mib = g->memory_mib - g->reserved_mib;
	return (unsigned long long)mib << 20;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
	ENTER(device);
	if (g.unified)
		return NVML_ERROR_NOT_SUPPORTED;
	if (fake_instance(device) >= 0) {
		memory->total = (unsigned long long)g.instances[fake_instance(device)].memory_mib << 20;
		memory->reserved = 0;
		memory->used = used_by(&g, fake_instance(device));
		memory->free = memory->total - memory->used;
		return NVML_SUCCESS;
	}
	memory->total = (unsigned long long)g.memory_mib << 20;
	memory->reserved = (unsigned long long)g.reserved_mib << 20;
	memory->used = used_bytes(&g);
	memory->free = memory->total - memory->reserved - memory->used;
	return NVML_SUCCESS;
}

/* The first form counts what the driver reserves as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	ENTER(device);
	if (g.unified)
		return NVML_ERROR_NOT_SUPPORTED;
	if (fake_instance(device) >= 0) {
		memory->total = (unsigned long long)g.instances[fake_instance(device)].memory_mib << 20;
		memory->used = used_by(&g, fake_instance(device));
		memory->free = memory->total - memory->used;
		return NVML_SUCCESS;
	}
	memory->total = (unsigned long long)g.memory_mib << 20;
	memory->used = used_bytes(&g) + ((unsigned long long)g.reserved_mib << 20);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
	ENTER(device);
	*power = (unsigned int)fake_power_mw(&g, fake_now_ms());
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
	ENTER(device);
	long long mj;
	if (!fake_energy_mj(&g, &mj))
		return NVML_ERROR_UNKNOWN;
	*energy = (unsigned long long)mj;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit) {
	ENTER(device);
	*limit = (unsigned int)fake_power_limit_mw(&g);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *limit) {
	ENTER(device);
	*limit = (unsigned int)g.power_limit_mw;
	return NVML_SUCCESS;
}

/* From two sevenths, which an H100's 200 of 700 W are, to what it was made for. */
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most) {
	ENTER(device);
	*least = (unsigned int)(g.power_limit_mw * 2 / 7);
	*most = (unsigned int)g.power_limit_mw;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
	ENTER(device);
	if (limit < g.power_limit_mw * 2 / 7 || limit > g.power_limit_mw)
		return NVML_ERROR_INVALID_ARGUMENT;
	return fake_set_power_limit(&g, limit) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit) {
	ENTER(device);
	*limit = (unsigned int)fake_power_limit_mw(&g);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
	ENTER(device);
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = (unsigned int)(g.temp_idle + (g.temp_busy - g.temp_idle) * fake_load(&g, fake_now_ms()) / 100);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
	ENTER(device);
	if (type != NVML_CLOCK_SM && type != NVML_CLOCK_MEM)
		return NVML_ERROR_NOT_SUPPORTED;
	long long busy = type == NVML_CLOCK_SM ? g.clock_sm_mhz : g.clock_mem_mhz;
	if (!busy)
		return NVML_ERROR_NOT_SUPPORTED;
	bool slow = (g.clocks_reasons & (nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown |
					 nvmlClocksThrottleReasonHwPowerBrakeSlowdown)) != 0;
	long long clock = fake_load(&g, fake_now_ms()) == 0 ? busy / 3 : slow && type == NVML_CLOCK_SM ? busy / 2 : busy;
	*mhz = (unsigned int)clock;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
	ENTER(device);
	*reasons = (unsigned long long)g.clocks_reasons;
	if (fake_load(&g, fake_now_ms()) == 0)
		*reasons |= nvmlClocksEventReasonGpuIdle;
	else if (fake_power_mw(&g, fake_now_ms()) >= fake_power_limit_mw(&g))
		*reasons |= nvmlClocksEventReasonSwPowerCap;
	return NVML_SUCCESS;
}

/* The name before R535. */
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count) {
	ENTER(device);
	*count = (unsigned int)g.pcie_replays;
	return NVML_SUCCESS;
}

/* Cards that are cooled by the machine's fans have none. */
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *fans) {
	ENTER(device);
	*fans = (unsigned int)g.fans;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed) {
	ENTER(device);
	if (!g.fans)
		return NVML_ERROR_NOT_SUPPORTED;
	if (fan >= g.fans)
		return NVML_ERROR_INVALID_ARGUMENT;
	*speed = (unsigned int)(30 + fake_load(&g, fake_now_ms()) / 2 + fan);
	return NVML_SUCCESS;
}

/* The three forms of the process list differ in their struct; a common writer fills them by stride. */
static nvmlReturn_t processes(const struct gpu *g, int instance, bool graphics, unsigned int *count, char *infos, size_t stride, bool instances) {
	struct process ps[MAX_PROCESSES];
	unsigned int all = (unsigned int)fake_processes(instance < 0 ? g->uuid : g->instances[instance].uuid, ps, MAX_PROCESSES), n = 0, room = *count;
	for (unsigned int i = 0; i < all; i++)
		if (ps[i].graphics == graphics)
			ps[n++] = ps[i];
	*count = n;
	if (n == 0)
		return NVML_SUCCESS;
	if (room < n || !infos)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++) {
		nvmlProcessInfo_t *info = (nvmlProcessInfo_t *)(void *)(infos + i * stride);
		info->pid = (unsigned int)ps[i].pid;
		info->usedGpuMemory = ps[i].memory_mib ? (unsigned long long)ps[i].memory_mib << 20 : (unsigned long long)NVML_VALUE_NOT_AVAILABLE;
		if (instances)
			info->gpuInstanceId = instance < 0 ? 0xFFFFFFFFu : (unsigned int)instance + 1,
			info->computeInstanceId = instance < 0 ? 0xFFFFFFFFu : 0;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
	ENTER(device);
	return processes(&g, fake_instance(device), false, count, (char *)infos, sizeof *infos, true);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) {
	ENTER(device);
	return processes(&g, fake_instance(device), false, count, (char *)infos, sizeof *infos, true);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) {
	ENTER(device);
	return processes(&g, fake_instance(device), false, count, (char *)infos, sizeof *infos, false);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
	ENTER(device);
	return processes(&g, fake_instance(device), true, count, (char *)infos, sizeof *infos, true);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) {
	ENTER(device);
	return processes(&g, fake_instance(device), true, count, (char *)infos, sizeof *infos, true);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) {
	ENTER(device);
	return processes(&g, fake_instance(device), true, count, (char *)infos, sizeof *infos, false);
}
