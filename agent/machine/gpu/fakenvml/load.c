/*
 * What a simulated GPU does: its load follows the processes the agent attached to it (PROFILE.processes, lines "UUID PID
 * MIB PERCENT", and a fifth word "graphics" for those that draw) and the profile's own "load"; power and temperature follow the load; energy integrates power. The
 * energy counters live in PROFILE.energy, so that they go on when the probe is restarted, as a real driver's do; to
 * delete that file is to reload the driver. Nothing here is random: the same profile at the same moment gives the same
 * figures.
 */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 256, MAX_STEPS = 24 * 3600 };

long long fake_now_ms(void) {
	struct profile p;
	if (profile_read(&p) && p.clock_ms >= 0)
		return p.clock_ms;
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static bool beside(const char *suffix, char *out, size_t size) {
	const char *path = profile_path();
	return path && snprintf(out, size, "%s%s", path, suffix) < (int)size;
}

int fake_processes(const char *uuid, struct process *out, int max) {
	char path[4096], line[LINE], id[TEXT];
	if (!beside(".processes", path, sizeof path))
		return 0;
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	int n = 0;
	while (n < max && fgets(line, sizeof line, f)) {
		struct process p;
		char kind[16] = "";
		if (sscanf(line, "%95s %d %lld %d %15s", id, &p.pid, &p.memory_mib, &p.load, kind) < 4 || strcmp(id, uuid))
			continue;
		p.graphics = !strcmp(kind, "graphics");
		if (p.pid > 0 && p.memory_mib >= 0 && (kill(p.pid, 0) == 0 || errno == EPERM))
			out[n++] = p;
	}
	fclose(f);
	return n;
}

/* A slow wave of ± 4 percent around a load, in a phase of the GPU's own. */
static int wave(const char *uuid, long long at_ms) {
	uint32_t h = 2166136261u;
	for (; *uuid; uuid++)
		h = (h ^ (unsigned char)*uuid) * 16777619u;
	long long period = 20 + h % 16, phase = (at_ms / 1000 + (h >> 8) % 16) % period;
	long long rise = phase * 2 <= period ? phase : period - phase; /* 0 … period/2 */
	return (int)(rise * 16 / period) - 4;
}

static int load_of(const struct gpu *g, int base, long long at_ms) {
	if (base <= 0)
		return 0;
	int load = base + wave(g->uuid, at_ms);
	return load < 0 ? 0 : load > 100 ? 100 : load;
}

static int base_load(const struct gpu *g) {
	struct process ps[MAX_PROCESSES];
	int n = fake_processes(g->uuid, ps, MAX_PROCESSES), load = (int)g->load;
	for (int i = 0; i < n; i++)
		load += ps[i].load > 0 ? ps[i].load : 0;
	return load > 100 ? 100 : load;
}

/* A limit that was set lies in PROFILE.power-UUID, so that it outlives the probe, as a driver's does. */
static bool power_file(const struct gpu *g, char *path, size_t size) {
	char suffix[TEXT + 8];
	snprintf(suffix, sizeof suffix, ".power-%s", g->uuid);
	return beside(suffix, path, size);
}

long long fake_power_limit_mw(const struct gpu *g) {
	char path[4096];
	long long mw = g->power_limit_mw;
	FILE *f = power_file(g, path, sizeof path) ? fopen(path, "re") : NULL;
	if (!f)
		return mw;
	if (fscanf(f, "%lld", &mw) != 1 || mw < 1 || mw > g->power_limit_mw)
		mw = g->power_limit_mw;
	fclose(f);
	return mw;
}

bool fake_set_power_limit(const struct gpu *g, long long mw) {
	char path[4096];
	FILE *f = power_file(g, path, sizeof path) ? fopen(path, "we") : NULL;
	if (!f)
		return false;
	fprintf(f, "%lld\n", mw);
	return fclose(f) == 0;
}

static long long power_of(const struct gpu *g, int load) {
	long long mw = g->power_idle_mw + (g->power_limit_mw - g->power_idle_mw) * load / 100, limit = fake_power_limit_mw(g);
	return mw < limit ? mw : limit;
}

int fake_load(const struct gpu *g, long long at_ms) { return load_of(g, base_load(g), at_ms); }

long long fake_power_mw(const struct gpu *g, long long at_ms) { return power_of(g, fake_load(g, at_ms)); }

/* Energy from..to at the present base load: a step per second of the wave. mW × ms = nJ × 1000, so /1000 gives µJ. */
static long long integrate_uj(const struct gpu *g, long long from, long long to) {
	int base = base_load(g);
	if (to - from > MAX_STEPS * 1000LL)
		return (to - from) / 1000 * power_of(g, load_of(g, base, to)) * 1000;
	long long sum = 0;
	while (from < to) {
		long long step = (from / 1000 + 1) * 1000;
		if (step > to)
			step = to;
		sum += power_of(g, load_of(g, base, from)) * (step - from);
		from = step;
	}
	return sum;
}

/* The file holds lines "UUID LAST_MS MICROJOULES"; it is updated under flock: several processes may ask. */
bool fake_energy_mj(const struct gpu *g, long long *energy) {
	char path[4096], text[MAX_GPUS * 2 * LINE], line[LINE];
	if (!beside(".energy", path, sizeof path))
		return false;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) != 0) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = 0;
	char out[sizeof text + LINE];
	size_t used = 0;
	long long now = fake_now_ms(), last = now, uj = 0;
	char *save = NULL, id[TEXT];
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		long long at, sum;
		if (sscanf(l, "%95s %lld %lld", id, &at, &sum) != 3)
			continue;
		if (!strcmp(id, g->uuid))
			last = at, uj = sum;
		else
			used += (size_t)snprintf(out + used, sizeof out - used, "%s %lld %lld\n", id, at, sum);
	}
	if (now > last)
		uj += integrate_uj(g, last, now);
	int len = snprintf(line, sizeof line, "%s %lld %lld\n", g->uuid, now, uj);
	memcpy(out + used, line, (size_t)len);
	used += (size_t)len;
	bool ok = pwrite(fd, out, used, 0) == (ssize_t)used && ftruncate(fd, (off_t)used) == 0;
	close(fd);
	*energy = uj / 1000;
	return ok;
}
