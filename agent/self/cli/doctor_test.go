package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/internal/agentapi"
)

func healthy() (agentapi.Inventory, machine) {
	return agentapi.Inventory{
		Kernel:         "6.1",
		DockerVersion:  "27.0",
		ToolkitVersion: "1.17.8",
		AttachMode:     "cdi",
		StorageDriver:  "btrfs",
		DiskGB:         900,
		Driver:         "570",
		GPUs:           []agentapi.GPU{{Model: "NVIDIA H100"}},
	}, machine{Root: true, Reachable: true, Ports: openPorts()}
}

// A good host has nothing but good findings, one for each check.
func TestDoctorOfAGoodHost(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range diagnose(healthy()) {
		if f.State != "ok" || f.Cause == "" {
			t.Errorf("%+v", f)
		}
		seen[f.Check] = true
	}
	for _, c := range []string{"rights", "kernel", "firewall", "docker", "toolkit", "disk", "scratch", "volumes", "gpus",
		"network", "ports", "platform", "link", "relay"} {
		if !seen[c] {
			t.Errorf("nothing is said of %s", c)
		}
	}
}

// Each problem is reported once, with its remedy, and its check is not reported as well, too.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	problem := func(code, severity string) func(*agentapi.Inventory, *machine) {
		return func(i *agentapi.Inventory, _ *machine) {
			i.Problems = append(i.Problems, agentapi.Problem{
				Code:     code,
				Severity: severity,
				Cause:    "cause of " + code,
				Evidence: "evidence",
				Fix:      "mend it",
			})
		}
	}
	for _, tc := range []struct {
		name, check, state string
		spoil              func(*agentapi.Inventory, *machine)
	}{
		{"not root", "rights", "bad", func(_ *agentapi.Inventory, m *machine) { m.Root = false }},
		{"no TUN", "kernel", "bad", func(_ *agentapi.Inventory, m *machine) { m.TUN = errors.New("no such device") }},
		{"no nft", "firewall", "bad", func(_ *agentapi.Inventory, m *machine) { m.NFT = errors.New("not found") }},
		{"old toolkit", "toolkit", "bad", problem("toolkit_too_old", "bad")},
		{"no live-restore", "docker", "warn", problem("no_live_restore", "warn")},
		{"gVisor not set up", "docker", "warn", problem("runsc_not_usable", "warn")},
		{"no scratch can be made", "scratch", "warn", problem("scratch_not_usable", "warn")},
		{"no volume can be made", "volumes", "warn", problem("volumes_not_usable", "warn")},
		{"no bucket can be mounted", "mounts", "warn", problem("mounts_not_usable", "warn")},
		{"disk not limited", "disk", "warn", problem("disk_not_limited", "warn")},
		{"little disk", "disk", "warn", func(i *agentapi.Inventory, _ *machine) { i.DiskGB = 10 }},
		{"a GPU's trouble", "gpus", "warn", problem("ecc_off", "warn")},
		{"a named port that is down", "network", "warn", problem("underlay_down", "warn")},
		{"no GPU", "gpus", "bad", func(i *agentapi.Inventory, _ *machine) { i.GPUs = nil }},
		{"no UDP port", "ports", "bad", func(_ *agentapi.Inventory,
			m *machine) {
			m.Ports.UDPErr = errors.New("address already in use")
		}},
		{"few UDP ports", "ports", "warn", func(_ *agentapi.Inventory,
			m *machine) {
			m.Ports.UDP.Taken = m.Ports.UDP.High - m.Ports.UDP.Low
		}},
		{"no platform is known", "platform", "warn", func(_ *agentapi.Inventory, m *machine) { m.Ports.Reach = nil }},
		{"the platform is closed", "platform", "bad", func(_ *agentapi.Inventory, m *machine) {
			m.Ports.Reach = &link.Reach{Platform: link.Reached{
				Address: "https://agents.example:8443",
				Err:     errors.New("timeout"),
			}}
		}},
		{"the link is closed", "link", "bad", func(_ *agentapi.Inventory,
			m *machine) {
			m.Ports.Reach.Link[0].Err = errors.New("timeout")
		}},
		{"one of two links is closed", "link", "warn", func(_ *agentapi.Inventory, m *machine) {
			m.Ports.Reach.Link = append(m.Ports.Reach.Link, link.Reached{
				Address: "tls://b.example:4223",
				Err:     errors.New("timeout"),
			})
		}},
		{"UDP is closed", "relay", "warn", func(_ *agentapi.Inventory, m *machine) {
			for i := range m.Ports.Reach.Relays {
				m.Ports.Reach.Relays[i].Err = errors.New("no answer")
			}
		}},
		{"one relay is closed", "relay", "warn", func(_ *agentapi.Inventory,
			m *machine) {
			m.Ports.Reach.Relays[1].Err = errors.New("no answer")
		}},
		{"behind a router", "network", "warn", func(_ *agentapi.Inventory, m *machine) { m.Reachable = false }},
	} {
		inv, m := healthy()
		tc.spoil(&inv, &m)
		all := diagnose(inv, m)
		if count(all, "bad")+count(all, "warn") != 1 {
			t.Errorf("%s: %+v", tc.name, all)
		}
		for _, f := range all {
			if f.State != "ok" && (f.Check != tc.check || f.State != tc.state || f.Remedy == "") {
				t.Errorf("%s: %+v", tc.name, f)
			}
		}
	}
	inv, m := healthy()
	m.Root = false
	var b strings.Builder
	if err := printFindings(&b, diagnose(inv, m)); err != nil || !strings.Contains(b.String(), "bad   rights") ||
		!strings.Contains(b.String(), "do:    Run it as root") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// The doctor reports a running DCGM as ok, with what to do about its profiling metrics.
func TestDoctorSeesDCGM(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	for pid, name := range map[string]string{
		"7":    "nv-hostengine",
		"12":   "dcgm-exporter",
		"13":   "dcgm-exporter",
		"20":   "python3",
		"self": "nv-hostengine",
	} {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	inv, m := healthy()
	if m.Watchers = watchers(proc); strings.Join(m.Watchers, " ") != "dcgm-exporter nv-hostengine" {
		t.Errorf("%q", m.Watchers)
	}
	reported := 0
	for _, f := range diagnose(inv, m) {
		if f.Check == "dcgm" {
			reported++
			if f.State != "ok" || !strings.Contains(f.Cause, "DCGM_FI_PROF_") || !strings.Contains(f.Remedy, "--pause") ||
				f.Found != "dcgm-exporter, nv-hostengine" {
				t.Errorf("%+v", f)
			}
		}
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
	if none := watchers(t.TempDir()); none != nil {
		t.Errorf("%v", none)
	}
}

// A host with AMD's GPUs is not judged by what NVIDIA's need.
func TestDoctorOfAnAMDHost(t *testing.T) {
	t.Parallel()
	inv, m := healthy()
	inv.ToolkitVersion, inv.Driver, inv.AMDGPU, inv.AttachMode = "", "", "6.12.12", "nodes"
	inv.GPUs = []agentapi.GPU{{Model: "AMD Instinct MI300X", Vendor: agentapi.AMD,
		Runtimes: map[string]string{"rocm": "6.4"}}}
	said := map[string]string{}
	for _, f := range diagnose(inv, m) {
		if f.State != "ok" || strings.Contains(f.Cause, "NVIDIA") || f.Check == "toolkit" || f.Check == "nvidia" {
			t.Errorf("%+v", f)
		}
		said[f.Check] = f.Cause
	}
	if said["amd"] != "amdgpu 6.12.12 runs ROCm up to 6.4 at least." || !strings.Contains(said["gpus"], "driver 6.12.12") {
		t.Errorf("%v", said)
	}
	inv.Problems = []agentapi.Problem{{Code: "rocm_unknown", Severity: "warn", Cause: "not known"}}
	inv.GPUs[0].Runtimes = nil
	found := false
	for _, f := range diagnose(inv, m) {
		found = found || f.Check == "amd" && f.State == "warn"
	}
	if !found {
		t.Error("nothing is said of ROCm")
	}
}
