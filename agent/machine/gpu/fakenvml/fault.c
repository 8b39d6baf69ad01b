/* What is wrong with a GPU: ECC, row remapping, recovery action, and the events that tell of Xids. */
#include "fake.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
					 unsigned long long *count) {
	(void)counter;
	ENTER(device);
	if (g.ecc != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = (unsigned long long)(type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? g.ecc_uncorrectable : g.ecc_corrected);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrectable,
				       unsigned int *pending, unsigned int *failure) {
	ENTER(device);
	if (g.ecc < 0 || !g.serial[0] || g.arch < NVML_DEVICE_ARCH_AMPERE) /* GeForce cards have none */
		return NVML_ERROR_NOT_SUPPORTED;
	*corrected = (unsigned int)g.remap_corrected;
	*uncorrectable = (unsigned int)g.remap_uncorrectable;
	*pending = (unsigned int)g.remap_pending;
	*failure = (unsigned int)g.remap_failure;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	ENTER(device);
	if (count < 1 || !values)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < count; i++) {
		values[i].timestamp = fake_now_ms() * 1000;
		values[i].latencyUsec = 0;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].nvmlReturn = NVML_SUCCESS;
		switch (values[i].fieldId) {
		case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
			if (g.recovery_action < 0)
				values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
			else
				values[i].value.uiVal = (unsigned int)g.recovery_action;
			break;
		case NVML_FI_DEV_NVLINK_LINK_COUNT: values[i].value.uiVal = (unsigned int)g.nvlinks; break;
		case NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL:
		case NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL:
		case NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL:
		case NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL:
			values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			values[i].value.ullVal = values[i].fieldId == NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
							 ? (unsigned long long)g.nvlink_errors : 0;
			if (!g.nvlinks)
				values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
			break;
		default: values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		}
	}
	return NVML_SUCCESS;
}

/* A set remembers the highest serial it has seen of each GPU: what was there before it registered is past. */
struct events {
	pthread_mutex_t lock;
	struct {
		bool on;
		long long serial;
	} gpus[MAX_GPUS];
};

static long long newest(const struct gpu *g) {
	long long serial = 0;
	for (int i = 0; i < g->xid_count; i++)
		if (g->xids[i].serial > serial)
			serial = g->xids[i].serial;
	return serial;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	struct events *e = calloc(1, sizeof *e);
	if (!e)
		return NVML_ERROR_MEMORY;
	pthread_mutex_init(&e->lock, NULL);
	set->handle = (void *)e;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	free((void *)set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	ENTER(device);
	*types = nvmlEventTypeXidCriticalError;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	ENTER(device);
	if (types & ~(unsigned long long)nvmlEventTypeXidCriticalError)
		return NVML_ERROR_NOT_SUPPORTED;
	struct events *e = (struct events *)(void *)set.handle;
	int slot = fake_slot(device);
	pthread_mutex_lock(&e->lock);
	e->gpus[slot].on = true;
	e->gpus[slot].serial = newest(&g);
	pthread_mutex_unlock(&e->lock);
	return NVML_SUCCESS;
}

/* One look: 1 an event, 0 nothing, -1 a registered GPU is lost, which each wait answers at once, as a driver does after
 * Xid 79. e->lock is held. */
static int look(struct events *e, const struct profile *p, nvmlEventData_t *data) {
	bool lost = false;
	for (int i = 0; i < p->count; i++) {
		const struct gpu *g = &p->gpus[i];
		if (!e->gpus[i].on)
			continue;
		const struct gpu_xid *next = NULL;
		for (int k = 0; k < g->xid_count; k++)
			if (g->xids[k].serial > e->gpus[i].serial && (!next || g->xids[k].serial < next->serial))
				next = &g->xids[k];
		if (next) {
			e->gpus[i].serial = next->serial;
			memset(data, 0, sizeof *data);
			data->device = fake_handle(i);
			data->eventType = nvmlEventTypeXidCriticalError;
			data->eventData = (unsigned long long)next->code;
			data->gpuInstanceId = next->instance ? (unsigned int)next->instance : 0xFFFFFFFFu;
			data->computeInstanceId = next->instance ? 0 : 0xFFFFFFFFu;
			return 1;
		}
		lost |= g->lost || g->absent;
	}
	return lost ? -1 : 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
	struct events *e = (struct events *)(void *)set.handle;
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		struct profile p;
		if (!fake_initialised() || !profile_read(&p))
			return NVML_ERROR_UNINITIALIZED;
		pthread_mutex_lock(&e->lock);
		int found = look(e, &p, data);
		pthread_mutex_unlock(&e->lock);
		if (found)
			return found > 0 ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
		clock_gettime(CLOCK_MONOTONIC, &now);
		long long waited = (now.tv_sec - start.tv_sec) * 1000LL + (now.tv_nsec - start.tv_nsec) / 1000000;
		if (waited >= timeout_ms)
			return NVML_ERROR_TIMEOUT;
		fake_pause_ms(timeout_ms - waited < 50 ? (int)(timeout_ms - waited) : 50);
	}
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
	return nvmlEventSetWait_v2(set, data, timeout_ms);
}
