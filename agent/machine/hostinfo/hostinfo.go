// Package hostinfo reads what a Linux host reports of itself: its system, processors, memory, disks and the clock of
// its boot. Every call reads the current values; nothing is cached.
package hostinfo

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Fill writes hostname, OS, kernel, processor, memory and boot id into inv. A value that cannot be read is left
// unchanged and added to the problems.
func Fill(inv *agentapi.Inventory) {
	warn := func(what string, err error) {
		if err != nil {
			inv.Problems = append(inv.Problems, agentapi.Problem{Code: "host_fact_unreadable", Severity: "warn",
				Cause: "The host does not report its " + what + ".", Evidence: err.Error()})
		}
	}
	var err error
	inv.BootID, err = BootID()
	warn("boot id", err)
	inv.Hostname, err = os.Hostname()
	warn("name", err)
	inv.Arch = runtime.GOARCH
	var uts unix.Utsname
	if err = unix.Uname(&uts); err == nil {
		inv.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	warn("kernel", err)
	release, err := os.ReadFile("/etc/os-release")
	inv.OS = osName(string(release))
	warn("operating system", err)
	cpu, err := os.ReadFile("/proc/cpuinfo")
	inv.CPUModel, inv.CPUCores = cpuFacts(string(cpu))
	if inv.CPUCores == 0 {
		inv.CPUCores = runtime.NumCPU()
	}
	warn("processors", err)
	mem, err := os.ReadFile("/proc/meminfo")
	inv.RAMMB = memTotalMB(string(mem))
	warn("memory", err)
}

// BootID returns the kernel's id of this boot. A restart of the agent is not a new boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// BootMS returns CLOCK_BOOTTIME in milliseconds: it also counts during suspend and is never set.
func BootMS() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return ts.Nano() / 1e6
}

// Suspended returns how long the host was suspended since it booted: CLOCK_BOOTTIME counts that and CLOCK_MONOTONIC
// does not.
func Suspended() time.Duration {
	var running unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &running); err != nil {
		panic(err) // every Linux has it
	}
	return max(0, time.Duration(BootMS())*time.Millisecond-time.Duration(running.Nano()))
}

// DiskFreeGB returns what an unprivileged user may still write on the file system of path, in GB of 10⁹ bytes.
func DiskFreeGB(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", path, err)
	}
	return int64(st.Bavail) * st.Bsize / 1e9, nil
}

// osName returns PRETTY_NAME of an os-release file.
func osName(release string) string {
	for line := range strings.Lines(release) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			if u, err := strconv.Unquote(v); err == nil {
				return u
			}
			return strings.Trim(v, `'"`)
		}
	}
	return ""
}

// cpuFacts returns the first model name of /proc/cpuinfo and the number of logical processors.
func cpuFacts(cpuinfo string) (model string, cores int) {
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			cores++
		case "model name":
			if model == "" {
				model = strings.TrimSpace(value)
			}
		}
	}
	return model, cores
}

// memTotalMB returns MemTotal of /proc/meminfo in MB of 2²⁰ bytes.
func memTotalMB(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb / 1024
		}
	}
	return 0
}
