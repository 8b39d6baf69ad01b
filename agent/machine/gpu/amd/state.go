package amd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// Sample returns what a GPU does now.
func (v Vendor) Sample(r wire.Request) (wire.Sample, *wire.Error) {
	n, err := v.findNode(r.GPU)
	if err != nil {
		return wire.Sample{}, err
	}
	dir := v.dir(n)
	s := wire.Sample{GPU: n.uuid()}
	s.Util = scaled[int](1)(readInt(filepath.Join(dir, "gpu_busy_percent")))
	s.MemUsed = scaled[int64](1)(readInt(filepath.Join(dir, "mem_info_vram_used")))
	s.MemTotal = scaled[int64](1)(readInt(filepath.Join(dir, "mem_info_vram_total")))
	s.PowerMW = scaled[int64](1000)(v.hwmon(dir, "power1_average", "power1_input"))
	s.TempC = scaled[int](1000)(v.hwmon(dir, "temp1_input", "temp2_input")) // edge; the MI300 has only the junction's
	s.SMMHz = scaled[int](1_000_000)(v.hwmon(dir, "freq1_input"))
	s.MemMHz = scaled[int](1_000_000)(v.hwmon(dir, "freq2_input"))
	p := pcieOf(dir)
	s.PCIeGen, s.PCIeGenMax = some(p.gen), some(p.genMax)
	s.PCIeWidth, s.PCIeWidthMax = some(p.width), some(p.widthMax)
	v.clocks(dir, &s)
	return s, nil
}

func scaled[T int | int64](by int64) func(n int64, ok bool) *T {
	return func(n int64, ok bool) *T {
		if !ok {
			return nil
		}
		out := T(n / by)
		return &out
	}
}

func some(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// Condition returns a GPU's uncorrectable errors by the block of the chip, the bad pages of its memory that are still
// in use, and whether its power controller answers.
func (v Vendor) Condition(r wire.Request) (wire.Condition, *wire.Error) {
	var c wire.Condition
	n, err := v.findNode(r.GPU)
	if err != nil {
		return c, err
	}
	if c.Odd = v.unfit(n); c.Odd != nil {
		return c, nil
	}
	dir := v.dir(n)
	counts, _ := filepath.Glob(filepath.Join(dir, "ras/*_err_count"))
	for _, path := range counts {
		if ue, ok := uncorrectable(readText(path)); ok && ue > 0 {
			if c.Uncorrectable == nil {
				c.Uncorrectable = map[string]uint64{}
			}
			c.Uncorrectable[strings.TrimSuffix(filepath.Base(path), "_err_count")] = ue
		}
	}
	c.RetirePending, c.RetireFailed = badPages(readText(filepath.Join(dir, "ras/gpu_vram_bad_pages")))
	const busy = "gpu_busy_percent"
	switch _, readErr := os.ReadFile(filepath.Join(dir, busy)); {
	case readErr == nil:
		c.Answered = append(c.Answered, busy)
	case errors.Is(readErr, fs.ErrNotExist), errors.Is(readErr, fs.ErrPermission), // asleep, or being reset
		errors.Is(readErr, syscall.EOPNOTSUPP), errors.Is(readErr, syscall.EINVAL), errors.Is(readErr, syscall.EBUSY):
	default:
		c.Unknown = append(c.Unknown, wire.Error{Code: wire.CodeUnknown, Call: busy, Text: readErr.Error()})
	}
	return c, nil
}

// uncorrectable parses "ue: 0", "ce: 1" and newer lines. During a reset the file says that it cannot be queried.
func uncorrectable(text string) (n uint64, ok bool) {
	for line := range strings.Lines(text) {
		if count, found := strings.CutPrefix(strings.TrimSpace(line), "ue: "); found {
			n, err := strconv.ParseUint(count, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// badPages parses lines of "0x027f5d43 : 0x00001000 : R", one for each bad page of the memory. R pages are out of use.
// P pages will be, and F pages could not be taken out of use: programs may still get them.
func badPages(text string) (pending, failed int) {
	for line := range strings.Lines(text) {
		switch fields := strings.Split(strings.TrimSpace(line), " : "); {
		case len(fields) != 3:
		case fields[2] == "P":
			pending++
		case fields[2] == "F":
			failed++
		}
	}
	return pending, failed
}

// Use returns the processes that have memory or a queue on a GPU. Every process that has opened /dev/kfd is listed for
// all GPUs that it may use, also if it uses none of them; what desktops hold through the graphics driver counts in
// MemUsed only.
func (v Vendor) Use(r wire.Request) (wire.Use, *wire.Error) {
	n, err := v.findNode(r.GPU)
	if err != nil {
		return wire.Use{}, err
	}
	u := wire.Use{Processes: []wire.Process{}}
	used, ok := readInt(filepath.Join(v.dir(n), "mem_info_vram_used"))
	if !ok {
		return u, &wire.Error{Code: wire.CodeNotSupported, Call: "mem_info_vram_used", Text: "cannot be read"}
	}
	u.MemUsed = used
	proc := filepath.Join(v.root, "class/kfd/kfd/proc")
	entries, readErr := os.ReadDir(proc)
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		return u, &wire.Error{Code: wire.CodeNotSupported, Call: "/sys/class/kfd/kfd/proc", Text: readErr.Error()}
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		held, _ := readInt(filepath.Join(proc, e.Name(), fmt.Sprintf("vram_%d", n.gpuID)))
		queues, _ := filepath.Glob(filepath.Join(proc, e.Name(), "queues/*/gpuid"))
		if held > 0 || slices.ContainsFunc(queues, func(q string) bool {
			id, ok := readInt(q)
			return ok && id == n.gpuID
		}) {
			u.Processes = append(u.Processes, wire.Process{PID: pid, MemUsed: held})
		}
	}
	return u, nil
}

// SetPower sets a GPU's power limit.
func (v Vendor) SetPower(r wire.Request) (wire.Power, *wire.Error) {
	n, err := v.findNode(r.GPU)
	if err != nil {
		return wire.Power{}, err
	}
	dir := v.dir(n)
	caps, _ := filepath.Glob(filepath.Join(dir, "hwmon/hwmon*/power1_cap"))
	now, ok := v.hwmon(dir, "power1_cap")
	if len(caps) == 0 || !ok {
		return wire.Power{}, device.Unsupported("power1_cap")
	}
	want := r.Milliwatts * 1000
	if r.Milliwatts == wire.DefaultPower {
		if want, ok = v.hwmon(dir, "power1_cap_default"); !ok {
			return wire.Power{}, device.Unsupported("power1_cap_default")
		}
	}
	least, _ := v.hwmon(dir, "power1_cap_min")
	most, ok := v.hwmon(dir, "power1_cap_max")
	if want < least || ok && want > most {
		return wire.Power{}, &wire.Error{Call: "power1_cap",
			Text: fmt.Sprintf("the GPU takes limits from %d to %d W", least/1_000_000, most/1_000_000)}
	}
	if now != want {
		if err := os.WriteFile(caps[0], []byte(strconv.FormatInt(want, 10)), 0o644); err != nil {
			return wire.Power{}, &wire.Error{Call: "power1_cap", Text: err.Error()}
		}
	}
	return wire.Power{LimitMW: want / 1000}, nil
}

// Reset resets a GPU, and with it every other GPU of its hive. The driver does so when the file is read, and answers
// with its result. It is in debugfs, in a folder whose file "name" names the GPU's place on the bus.
func (v Vendor) Reset(r wire.Request) *wire.Error {
	const call = "amdgpu_gpu_recover"
	n, err := v.findNode(r.GPU)
	if err != nil {
		return err
	}
	names, _ := filepath.Glob(filepath.Join(v.root, "kernel/debug/dri/*/name"))
	for _, path := range names {
		if !slices.Contains(strings.Fields(readText(path)), "dev="+filepath.Base(v.dir(n))) {
			continue
		}
		file := filepath.Join(filepath.Dir(path), call)
		if _, err := os.Stat(file); err != nil { // another of the GPU's minors has it
			continue
		}
		switch result, ok := readInt(file); {
		case !ok:
			return &wire.Error{Call: call, Text: "the driver gives no result"}
		case result != 0:
			return &wire.Error{Call: call, Text: fmt.Sprintf("the driver's reset failed (%d)", result)}
		}
		return nil
	}
	return &wire.Error{Code: wire.CodeNotSupported, Call: call,
		Text: "not there: debugfs is not mounted, or the driver cannot reset this GPU"}
}
