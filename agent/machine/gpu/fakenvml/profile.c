/*
 * The profile file: INI, one [driver] and one [gpu] section per GPU in index order. Lines are "key = value"; # begins a
 * comment line. An unknown key, a number out of range or a line that is too long refuses the whole file: the profile
 * read before stays in force, and the reason goes to stderr. Files should be replaced in one step (rename).
 *
 * "error = FUNCTION CODE", "xid = SERIAL CODE [GPU INSTANCE]" and "instance = UUID MIB" (a MIG device) may be repeated within a GPU.
 */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE = 256 * 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct profile current;
static bool have;
static struct stat seen;

const char *profile_path(void) {
	const char *path = getenv("MUSTER_FAKE_NVML");
	return path && *path ? path : NULL;
}

struct field {
	const char *key;
	size_t offset;
	bool text;
	long long min, max;
};

#define T(k) {#k, offsetof(struct gpu, k), true, 0, 0}
#define N(k, lo, hi) {#k, offsetof(struct gpu, k), false, lo, hi}
static const struct field gpu_fields[] = {
	T(uuid), T(name), T(serial), T(vbios), T(pci), T(nvlink_remote), T(hang), T(crash),
	N(arch, 2, 64), N(cc_major, 1, 99), N(cc_minor, 0, 9), N(memory_mib, 1, 1 << 24), N(reserved_mib, 0, 1 << 20),
	N(pcie_gen, 1, 9), N(pcie_width, 1, 32), N(pcie_switch, 0, 255), N(root, 0, 255), N(numa, -1, 63), N(p2p, 0, 1),
	N(memory_node, -1, 1023), N(minor, -1, 255),
	N(nvlinks, 0, 36), N(nvlinks_down, 0, 36), N(nvlink_version, 0, 99),
	N(fabric_state, -1, 255), N(fabric_status, 0, 999), N(fabric_health, 0, 4294967295LL), N(unified, 0, 1),
	N(fabric_wait, 0, 9999), N(fabric_settles, 0, 9999),
	N(ecc, -1, 1), N(mig, -1, 1), N(mig_pending, -1, 1), N(persistence, -1, 1), N(confidential, -1, 1),
	N(display, 0, 1),
	T(fabric_cluster), N(fabric_clique, 0, 4294967295LL), N(virtualization, -1, 4), N(vgpu_licensed, 0, 1),
	N(confidential_unready, 0, 1),
	N(power_idle_mw, 0, 10000000), N(power_limit_mw, 1, 10000000), N(temp_idle, 0, 150), N(temp_busy, 0, 150), N(load, 0, 100),
	N(clock_sm_mhz, 0, 9999), N(clock_mem_mhz, 0, 99999), N(clocks_reasons, 0, 511), N(pcie_width_now, 0, 32),
	N(pcie_gen_now, 0, 9), N(pcie_replays, 0, 2147483647), N(nvlink_errors, 0, LLONG_MAX), N(fans, 0, 8),
	N(lost, 0, 1), N(absent, 0, 1), N(ecc_uncorrectable, 0, LLONG_MAX), N(ecc_corrected, 0, LLONG_MAX),
	N(remap_corrected, 0, 1 << 20), N(remap_uncorrectable, 0, 1 << 20), N(remap_pending, 0, 1), N(remap_failure, 0, 1),
	N(recovery_action, -1, 99), N(stuck_mib, 0, 1 << 24),
};
#undef T
#undef N
#define T(k) {#k, offsetof(struct profile, k), true, 0, 0}
#define N(k, lo, hi) {#k, offsetof(struct profile, k), false, lo, hi}
static const struct field driver_fields[] = {
	T(version), T(nvml), T(hang), T(stall), N(cuda, 1000, 99999), N(init_error, 0, 999), N(clock_ms, -1, LLONG_MAX),
	N(lost_hides, 0, 1),
};

static char *trim(char *s) {
	while (isspace((unsigned char)*s))
		s++;
	char *end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		end--;
	*end = 0;
	return s;
}

static bool number(const char *s, long long min, long long max, long long *out) {
	char *end;
	errno = 0;
	long long v = strtoll(s, &end, 10);
	if (end == s || *end || errno || v < min || v > max || isspace((unsigned char)*s) || *s == '+')
		return false;
	*out = v;
	return true;
}

/* Two words: the value of error and xid. */
static bool two(char *value, char **first, char **second) {
	char *space = strpbrk(value, " \t");
	if (!space)
		return false;
	*space = 0;
	*first = value;
	*second = trim(space + 1);
	return **second != 0;
}

static bool set_repeated(struct gpu *g, const char *key, char *value) {
	char *a, *b;
	long long serial, code;
	if (!two(value, &a, &b))
		return false;
	if (!strcmp(key, "error")) {
		if (g->error_count == MAX_ERRORS || strlen(a) >= TEXT || !number(b, 1, 100000, &code))
			return false;
		strcpy(g->errors[g->error_count].function, a);
		g->errors[g->error_count++].code = (int)code;
		return true;
	}
	if (!strcmp(key, "instance")) {
		struct gpu_instance *in = &g->instances[g->instance_count];
		if (g->instance_count == MAX_INSTANCES || strlen(a) >= TEXT || !number(b, 1, 1 << 24, &in->memory_mib))
			return false;
		strcpy(in->uuid, a);
		g->instance_count++;
		return true;
	}
	char *code_text = b, *instance_text;
	long long instance = 0;
	if (two(b, &code_text, &instance_text) && !number(instance_text, 1, MAX_INSTANCES, &instance))
		return false;
	if (g->xid_count == MAX_XIDS || !number(a, 1, LLONG_MAX, &serial) || !number(b, 1, 9999, &code))
		return false;
	g->xids[g->xid_count].serial = serial;
	g->xids[g->xid_count].instance = (int)instance;
	g->xids[g->xid_count++].code = (int)code;
	return true;
}

static bool set(void *base, const struct field *fields, size_t count, const char *key, const char *value) {
	for (size_t i = 0; i < count; i++) {
		if (strcmp(fields[i].key, key))
			continue;
		char *at = (char *)base + fields[i].offset;
		if (!fields[i].text)
			return *value && number(value, fields[i].min, fields[i].max, (long long *)at);
		if (strlen(value) >= TEXT)
			return false;
		strcpy(at, value);
		return true;
	}
	return false;
}

static void gpu_defaults(struct gpu *g) {
	memset(g, 0, sizeof *g);
	g->arch = 9, g->cc_major = 9, g->memory_mib = 1, g->pcie_gen = 4, g->pcie_width = 16, g->numa = -1;
	g->memory_node = g->minor = -1;
	g->ecc = g->mig = g->mig_pending = g->persistence = g->confidential = -1;
	g->power_limit_mw = 1;
}

bool profile_parse(char *text, struct profile *out, char *why, size_t why_size) {
	memset(out, 0, sizeof *out);
	out->cuda = 12040;
	out->clock_ms = -1;
	out->lost_hides = 1;
	enum { NONE, DRIVER, GPU } section = NONE;
	int line_no = 0;
	for (char *line = text, *next; line; line = next) {
		line_no++;
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		line = trim(line);
		if (!*line || *line == '#')
			continue;
		bool ok;
		if (*line == '[') {
			if ((ok = !strcmp(line, "[driver]")))
				section = DRIVER;
			else if ((ok = !strcmp(line, "[gpu]") && out->count < MAX_GPUS)) {
				section = GPU;
				gpu_defaults(&out->gpus[out->count++]);
			}
		} else {
			char *eq = strchr(line, '=');
			if ((ok = eq != NULL)) {
				*eq = 0;
				char *key = trim(line), *value = trim(eq + 1);
				struct gpu *g = out->count ? &out->gpus[out->count - 1] : NULL;
				if (section == DRIVER)
					ok = set(out, driver_fields, sizeof driver_fields / sizeof *driver_fields, key, value);
				else if (section == GPU && (!strcmp(key, "error") || !strcmp(key, "xid") || !strcmp(key, "instance")))
					ok = set_repeated(g, key, value);
				else
					ok = section == GPU && set(g, gpu_fields, sizeof gpu_fields / sizeof *gpu_fields, key, value);
			}
		}
		if (!ok) {
			snprintf(why, why_size, "line %d is not understood", line_no);
			return false;
		}
	}
	for (int i = 0; i < out->count; i++)
		if (!out->gpus[i].uuid[0] || !out->gpus[i].pci[0]) {
			snprintf(why, why_size, "GPU %d has no uuid or no pci", i);
			return false;
		}
	return true;
}

static char *slurp(FILE *f) {
	char *text = malloc(MAX_FILE + 1);
	if (!text)
		return NULL;
	size_t n = fread(text, 1, MAX_FILE + 1, f);
	if (n > MAX_FILE || memchr(text, 0, n)) {
		free(text);
		return NULL;
	}
	text[n] = 0;
	return text;
}

/* lock is held. */
static void reload(const char *path) {
	FILE *f = fopen(path, "re");
	if (!f)
		return; /* being replaced, or gone: what was read stays */
	struct stat st;
	static struct profile fresh;
	char why[TEXT] = "too large, or not text";
	if (fstat(fileno(f), &st) == 0) {
		char *text = slurp(f);
		seen = st;
		if (text && profile_parse(text, &fresh, why, sizeof why)) {
			current = fresh;
			have = true;
		} else
			fprintf(stderr, "fake NVML: %s: %s\n", path, why);
		free(text);
	}
	fclose(f);
}

bool profile_read(struct profile *out) {
	const char *path = profile_path();
	if (!path)
		return false;
	pthread_mutex_lock(&lock);
	struct stat st;
	if (stat(path, &st) == 0 && (st.st_ino != seen.st_ino || st.st_size != seen.st_size ||
				     st.st_mtim.tv_sec != seen.st_mtim.tv_sec || st.st_mtim.tv_nsec != seen.st_mtim.tv_nsec))
		reload(path);
	bool ok = have;
	if (ok)
		*out = current;
	pthread_mutex_unlock(&lock);
	return ok;
}
