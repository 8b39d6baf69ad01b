package fakeprofile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// field is one key of a section: its variable, its range, and the default, which need not be written.
type field struct {
	key      string
	text     *string
	num      *int64
	min, max int64
	unset    int64
}

func text(key string, v *string) field { return field{key: key, text: v} }

func num(key string, v *int64, min, max, unset int64) field {
	return field{key: key, num: v, min: min, max: max, unset: unset}
}

func (p *Profile) fields() []field {
	return []field{
		text("version", &p.Version), text("nvml", &p.NVML), text("hang", &p.Hang), text("stall", &p.Stall),
		num("cuda", &p.CUDA, 1000, 99999, 12040), num("init_error", &p.InitError, 0, 999, 0),
		num("clock_ms", &p.ClockMS, -1, math.MaxInt64, -1), num("lost_hides", &p.LostHides, 0, 1, 1),
	}
}

func (g *GPU) fields() []field {
	const any, mib = math.MaxInt64, 1 << 24
	return []field{
		text("uuid", &g.UUID), text("name", &g.Name), text("serial", &g.Serial), text("vbios", &g.VBIOS), text("pci", &g.PCI),
		num("arch", &g.Arch, 2, 64, 9), num("cc_major", &g.CCMajor, 1, 99, 9), num("cc_minor", &g.CCMinor, 0, 9, 0),
		num("memory_mib", &g.MemoryMiB, 1, mib, 1), num("reserved_mib", &g.ReservedMiB, 0, 1<<20, 0),
		num("pcie_gen", &g.PCIeGen, 1, 9, 4), num("pcie_width", &g.PCIeWidth, 1, 32, 16),
		num("pcie_switch", &g.PCIeSwitch, 0, 255, 0), num("root", &g.Root, 0, 255, 0), num("numa", &g.NUMA, -1, 63, -1),
		num("p2p", &g.P2P, 0, 1, 0),
		num("memory_node", &g.MemoryNode, -1, 1023, -1), num("minor", &g.Minor, -1, 255, -1),
		num("nvlinks", &g.NVLinks, 0, 36, 0), num("nvlinks_down", &g.NVLinksDown, 0, 36, 0),
		num("nvlink_version", &g.NVLinkVersion, 0, 99, 0),
		num("fabric_state", &g.FabricState, -1, 255, 0), num("fabric_status", &g.FabricStatus, 0, 999, 0),
		num("fabric_health", &g.FabricHealth, 0, math.MaxUint32, 0), num("unified", &g.Unified, 0, 1, 0),
		num("fabric_wait", &g.FabricWait, 0, 9999, 0), num("fabric_settles", &g.FabricSettles, 0, 9999, 0),
		text("nvlink_remote", &g.NVLinkRemote),
		num("ecc", &g.ECC, -1, 1, -1), num("mig", &g.MIG, -1, 1, -1), num("mig_pending", &g.MIGPending, -1, 1, -1),
		num("persistence", &g.Persistence, -1, 1, -1),
		num("confidential", &g.Confidential, -1, 1, -1), num("display", &g.Display, 0, 1, 0),
		text("fabric_cluster", &g.FabricCluster), num("fabric_clique", &g.FabricClique, 0, math.MaxUint32, 0),
		num("virtualization", &g.Virtualization, -1, 4, 0), num("vgpu_licensed", &g.VGPULicensed, 0, 1, 0),
		num("confidential_unready", &g.ConfidentialUnready, 0, 1, 0),
		num("power_idle_mw", &g.PowerIdleMW, 0, 1e7, 0), num("power_limit_mw", &g.PowerLimitMW, 1, 1e7, 1),
		num("temp_idle", &g.TempIdle, 0, 150, 0), num("temp_busy", &g.TempBusy, 0, 150, 0), num("load", &g.Load, 0, 100, 0),
		num("clock_sm_mhz", &g.ClockSMMHz, 0, 9999, 0), num("clock_mem_mhz", &g.ClockMemMHz, 0, 99999, 0),
		num("clocks_reasons", &g.ClocksReasons, 0, 511, 0), num("pcie_width_now", &g.PCIeWidthNow, 0, 32, 0),
		num("pcie_gen_now", &g.PCIeGenNow, 0, 9, 0), num("pcie_replays", &g.PCIeReplays, 0, math.MaxInt32, 0),
		num("nvlink_errors", &g.NVLinkErrors, 0, any, 0), num("fans", &g.Fans, 0, 8, 0),
		num("lost", &g.Lost, 0, 1, 0), num("absent", &g.Absent, 0, 1, 0),
		num("ecc_uncorrectable", &g.ECCUncorrectable, 0, any, 0), num("ecc_corrected", &g.ECCCorrected, 0, any, 0),
		num("remap_corrected", &g.RemapCorrected, 0, 1<<20, 0), num("remap_uncorrectable", &g.RemapUncorrectable, 0, 1<<20,
			0),
		num("remap_pending", &g.RemapPending, 0, 1, 0), num("remap_failure", &g.RemapFailure, 0, 1, 0),
		num("recovery_action", &g.RecoveryAction, -1, 99, 0), num("stuck_mib", &g.StuckMiB, 0, mib, 0),
		text("hang", &g.Hang), text("crash", &g.Crash),
	}
}

// blank sets every field to the library's default for a missing key.
func blank(fields []field) {
	for _, f := range fields {
		if f.num != nil {
			*f.num = f.unset
		}
	}
}

// Parse parses the text of a profile. It refuses what the library would refuse.
func Parse(b []byte) (*Profile, error) {
	if len(b) > maxFile || bytes.IndexByte(b, 0) >= 0 {
		return nil, errors.New("profile is too large, or not text")
	}
	p := &Profile{}
	section := p.fields()
	blank(section)
	section = nil
	var g *GPU
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.Trim(line, " \t\r\v\f")
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		switch {
		case line == "[driver]":
			section, g = p.fields(), nil
		case line == "[gpu]" && len(p.GPUs) < MaxGPUs:
			p.GPUs = append(p.GPUs, GPU{})
			g = &p.GPUs[len(p.GPUs)-1]
			section = g.fields()
			blank(section)
		case line[0] == '[':
			err = errors.New("no such section, or too many GPUs")
		default:
			err = parseLine(section, g, line)
		}
		if err != nil {
			return nil, fmt.Errorf("profile line %d: %w", i+1, err)
		}
	}
	return p, p.check()
}

func parseLine(section []field, g *GPU, line string) error {
	key, value, ok := strings.Cut(line, "=")
	if !ok {
		return errors.New("not key = value")
	}
	const blanks = " \t\r\v\f"
	key, value = strings.Trim(key, blanks), strings.Trim(value, blanks)
	if g != nil && (key == "error" || key == "xid" || key == "instance") {
		return g.parseRepeated(key, value)
	}
	for _, f := range section {
		if f.key != key {
			continue
		}
		if f.text != nil {
			*f.text = value
			return checkText(value)
		}
		n, err := parseNum(value)
		if err != nil || n < f.min || n > f.max {
			return fmt.Errorf("%s is not a number from %d to %d", key, f.min, f.max)
		}
		*f.num = n
		return nil
	}
	return fmt.Errorf("unknown key %q", key)
}

func (g *GPU) parseRepeated(key, value string) error {
	a, b, ok := cutBlank(value)
	instance := int64(0)
	if code, in, three := cutBlank(b); three && key == "xid" {
		var err error
		if instance, err = parseNum(in); err != nil || instance < 1 || instance > maxInstances {
			return errors.New("xid's third word is no GPU instance")
		}
		b = code
	}
	n, err := parseNum(b)
	switch {
	case !ok || err != nil || n < 1:
		return fmt.Errorf("%s is not two words, the second a number", key)
	case key == "error":
		if len(g.Errors) == maxErrors || n > 100000 {
			return errors.New("too many errors, or no return code")
		}
		g.Errors = append(g.Errors, Error{a, n})
		return checkText(a)
	}
	if key == "instance" {
		if len(g.Instances) == maxInstances || n > 1<<24 {
			return errors.New("too many MIG devices, or too much memory")
		}
		g.Instances = append(g.Instances, Instance{a, n})
		return checkText(a)
	}
	serial, err := parseNum(a)
	if err != nil || serial < 1 || n > 9999 || len(g.Xids) == maxXids {
		return errors.New("not an xid, or too many of them")
	}
	g.Xids = append(g.Xids, Xid{serial, n, instance})
	return nil
}

func cutBlank(s string) (first, rest string, ok bool) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.Trim(s[i:], " \t\r\v\f"), true
}

func parseNum(s string) (int64, error) {
	if strings.HasPrefix(s, "+") {
		return 0, errors.New("sign")
	}
	return strconv.ParseInt(s, 10, 64)
}

func checkText(s string) error {
	if len(s) > maxText || strings.ContainsAny(s, "\n\x00") {
		return errors.New("text is too long, or not one line")
	}
	return nil
}

func (p *Profile) check() error {
	seen := map[string]bool{}
	for i, g := range p.GPUs {
		switch {
		case g.UUID == "" || g.PCI == "":
			return fmt.Errorf("profile: GPU %d has no uuid or no pci", i)
		case seen[g.UUID]:
			return fmt.Errorf("profile: GPU %d has the uuid of another", i)
		}
		seen[g.UUID] = true
	}
	return nil
}

// Format returns the text of the profile. It fails if Parse would not read the same profile back.
func (p *Profile) Format() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Simulated GPUs for the fake NVML library; see agent/machine/gpu/fakenvml.\n[driver]\n")
	write(&b, p.fields())
	for i := range p.GPUs {
		g := &p.GPUs[i]
		b.WriteString("\n[gpu]\n")
		write(&b, g.fields())
		for _, in := range g.Instances {
			fmt.Fprintf(&b, "instance = %s %d\n", in.UUID, in.MemoryMiB)
		}
		for _, e := range g.Errors {
			fmt.Fprintf(&b, "error = %s %d\n", e.Function, e.Code)
		}
		for _, x := range g.Xids {
			fmt.Fprintf(&b, "xid = %d %d", x.Serial, x.Code)
			if x.Instance > 0 {
				fmt.Fprintf(&b, " %d", x.Instance)
			}
			b.WriteString("\n")
		}
	}
	_, err := Parse(b.Bytes())
	return b.Bytes(), err
}

func write(b *bytes.Buffer, fields []field) {
	for _, f := range fields {
		switch {
		case f.text != nil && *f.text != "":
			fmt.Fprintf(b, "%s = %s\n", f.key, *f.text)
		case f.num != nil && *f.num != f.unset:
			fmt.Fprintf(b, "%s = %d\n", f.key, *f.num)
		}
	}
}
