package nvhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
)

// machine is a host with two GPUs, each below a bridge, that is set up well.
type machine struct {
	Host
	sys, proc, dev string
	answers        map[string]string // of commands, by their first word
}

func newMachine(t *testing.T) *machine {
	m := &machine{sys: t.TempDir(), proc: t.TempDir(), dev: t.TempDir(), answers: map[string]string{
		"nvidia-smi":       gpus("Enabled, Default, Enabled, Disabled, Disabled"),
		"nv-fabricmanager": "Fabric Manager version is : 570.86.15",
	}}
	for i := range 2 {
		bridge := fmt.Sprintf("devices/pci0000:%02x/0000:%02x:01.0/", i, i)
		sysfstest.Write(t, m.sys, bridge+"config", string(config(0)))
		device := fmt.Sprintf("%s0000:%02x:00.0", bridge, i+16)
		sysfstest.Link(t, m.sys, fmt.Sprintf("bus/pci/devices/0000:%02x:00.0", i+16), device)
		sysfstest.Write(t, m.sys, device+"/vendor", "0x10de\n")
		sysfstest.Write(t, m.sys, device+"/class", "0x030200\n")
	}
	sysfstest.Write(t, m.proc, "modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 0 - Live 0x0\n")
	sysfstest.Write(t, m.dev, "nvidia-uvm", "")
	m.Host = Host{SysFS: m.sys, ProcFS: m.proc, Dev: m.dev, Run: func(_ context.Context, name string,
		_ ...string) (string, error) {
		if out, ok := m.answers[name]; ok {
			return out, nil
		}
		return "", errors.New("not found")
	}}
	return m
}

func gpus(modes string) string { return "0, " + modes + "\n1, " + modes + "\n" }

// config is a PCI configuration with ACS as the second extended capability.
func config(control uint16) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b[0x100:], 0x1<<16|0x0001|0x148<<20)
	binary.LittleEndian.PutUint32(b[0x148:], 0x1<<16|0x000d)
	binary.LittleEndian.PutUint16(b[0x14e:], control)
	return b
}

func (m *machine) switches(t *testing.T) {
	sysfstest.Write(t, m.sys, "bus/pci/devices/0000:c0:00.0/vendor", "0x10de\n")
	sysfstest.Write(t, m.sys, "bus/pci/devices/0000:c0:00.0/class", "0x068000\n")
}

// Each thing that is wrong is found by itself, with what was seen and what to do.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		change   func(*testing.T, *machine)
		code     string // "": nothing is found
		severity string
		evidence string
		fix      string
	}{
		{name: "set up well", change: func(*testing.T, *machine) {}},
		{name: "no fabric manager", change: func(t *testing.T, m *machine) { m.switches(t) }, code: FabricManager,
			severity: "bad", evidence: "1 NVSwitches"},
		{name: "the fabric manager runs", change: func(t *testing.T, m *machine) {
			m.switches(t)
			sysfstest.Write(t, m.proc, "77/comm", "nv-fabricmanage\n")
		}},
		{name: "the fabric manager has another version", change: func(t *testing.T, m *machine) {
			m.switches(t)
			sysfstest.Write(t, m.proc, "77/comm", "nv-fabricmanage\n")
			m.answers["nv-fabricmanager"] = "Fabric Manager version is : 570.133.20"
		}, code: FabricManager, severity: "bad", evidence: "fabric manager 570.133.20"},
		{name: "switches behind network cards", change: func(t *testing.T, m *machine) {
			for i, model := range []string{"SW_MNG", "SW_MNG", "MCX755106AS-HEAT"} {
				at := fmt.Sprintf("bus/pci/devices/0000:d%d:00.0/", i)
				sysfstest.Write(t, m.sys, at+"vendor", "0x15b3\n")
				sysfstest.Write(t, m.sys, at+"class", "0x020700\n")
				sysfstest.Write(t, m.sys, at+"vpd", "\x82\x20\x00NVIDIA\x90V0SMDL="+model)
			}
		}, code: FabricManager, severity: "bad", evidence: "2 network cards that lead to NVSwitches (SW_MNG), driver " +
			"570.86.15, ib_umad is not loaded, nvlsm does not run", fix: "install nvlsm"},
		{name: "switches behind network cards that are set up", change: func(t *testing.T, m *machine) {
			sysfstest.Write(t, m.sys, "bus/pci/devices/0000:d0:00.0/vendor", "0x15b3\n")
			sysfstest.Write(t, m.sys, "bus/pci/devices/0000:d0:00.0/class", "0x020700\n")
			sysfstest.Write(t, m.sys, "bus/pci/devices/0000:d0:00.0/vpd", "V0SMDL=SW_MNG")
			sysfstest.Write(t, m.proc, "77/comm", "nv-fabricmanage\n")
		}},
		{name: "no persistence", change: func(_ *testing.T, m *machine) {
			m.answers["nvidia-smi"] = "0, Enabled, Default, Enabled, Disabled, Disabled\n" +
				"1, Disabled, Default, Enabled, Disabled, Disabled\n"
		}, code: Persistence, severity: "warn", evidence: "GPU 1"},
		{name: "compute mode", change: func(_ *testing.T, m *machine) {
			m.answers["nvidia-smi"] = gpus("Enabled, Exclusive_Process, Enabled, Disabled, Disabled")
		}, code: ComputeMode, severity: "bad", evidence: "GPU 0, 1"},
		{name: "ECC off", change: func(_ *testing.T, m *machine) {
			m.answers["nvidia-smi"] = gpus("Enabled, Default, Disabled, Disabled, Disabled")
		}, code: ECC, severity: "warn", evidence: "GPU 0, 1"},
		{name: "MIG pending", change: func(_ *testing.T, m *machine) {
			m.answers["nvidia-smi"] = gpus("Enabled, Default, Enabled, Disabled, Enabled")
		}, code: MIGPending, severity: "warn", evidence: "GPU 0, 1"},
		{name: "GeForce", change: func(_ *testing.T, m *machine) {
			m.answers["nvidia-smi"] = gpus("Enabled, Default, [N/A], [N/A], [N/A]")
		}},
		{name: "nouveau", change: func(t *testing.T, m *machine) {
			sysfstest.Write(t, m.proc, "modules", "nouveau 1 0 - Live 0x0\n")
		}, code: Nouveau, severity: "warn", evidence: "nouveau"},
		{name: "no UVM node", change: func(t *testing.T, m *machine) {
			if err := os.Remove(filepath.Join(m.dev, "nvidia-uvm")); err != nil {
				t.Fatal(err)
			}
		}, code: UVM, severity: "warn", evidence: "nvidia-uvm"},
		{name: "ACS", change: func(t *testing.T, m *machine) {
			sysfstest.Write(t, m.sys, "devices/pci0000:00/0000:00:01.0/config", string(config(0x1d)))
			sysfstest.Write(t, m.sys, "class/iommu/dmar0/x", "")
		}, code: ACS, severity: "warn", evidence: "1 bridges above GPUs, 1 IOMMUs"},
		{name: "ACS without redirection", change: func(t *testing.T, m *machine) {
			sysfstest.Write(t, m.sys, "devices/pci0000:00/0000:00:01.0/config", string(config(0x01)))
		}},
		{name: "nothing can be read", change: func(t *testing.T, m *machine) {
			m.answers = nil
			m.SysFS, m.ProcFS = t.TempDir(), t.TempDir()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			tc.change(t, m)
			got := m.Problems(t.Context(), "570.86.15")
			if tc.code == "" {
				if len(got) > 0 {
					t.Errorf("found %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Code != tc.code || got[0].Severity != tc.severity || got[0].Fix == "" ||
				!strings.Contains(got[0].Fix, tc.fix) ||
				!strings.Contains(got[0].Evidence, tc.evidence) {
				t.Errorf("found %+v", got)
			}
			if !slices.Contains(Codes(), tc.code) {
				t.Errorf("%s is not among the codes", tc.code)
			}
		})
	}
}

// The device nodes are made when they are missing, and only then.
func TestMakeUVM(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if err := m.MakeUVM(t.Context()); err != nil { // there: no command runs, which would fail
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(m.dev, "nvidia-uvm")); err != nil {
		t.Fatal(err)
	}
	if err := m.MakeUVM(t.Context()); err == nil {
		t.Error("nvidia-modprobe is not there, and no error came")
	}
	m.answers["nvidia-modprobe"] = ""
	if err := m.MakeUVM(t.Context()); err != nil {
		t.Error(err)
	}
}

// The toolkit's unit writes the specification, or its program where there is no unit; the nodes of slices come first.
func TestDescribeGPUs(t *testing.T) {
	t.Parallel()
	var ran []string
	works := map[string]bool{"nvidia-smi": true, "systemctl": true}
	h := Host{Run: func(_ context.Context, name string, args ...string) (string, error) {
		ran = append(ran, name+" "+strings.Join(args, " "))
		if !works[name] {
			return "", errors.New("not found")
		}
		return "", nil
	}}
	if err := h.DescribeGPUs(t.Context()); err != nil || !slices.Equal(ran, []string{"nvidia-smi -L",
		"systemctl restart nvidia-cdi-refresh.service"}) {
		t.Errorf("%v, %q", err, ran)
	}
	works["systemctl"], works["nvidia-ctk"], ran = false, true, nil
	if err := h.DescribeGPUs(t.Context()); err != nil || len(ran) != 3 ||
		!strings.HasPrefix(ran[2], "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml ") {
		t.Errorf("%v, %q", err, ran)
	}
	works["nvidia-ctk"] = false
	if err := h.DescribeGPUs(t.Context()); err == nil {
		t.Error("nothing wrote it, and no error came")
	}
	works["nvidia-smi"], ran = false, nil
	if err := h.DescribeGPUs(t.Context()); err == nil || len(ran) != 1 {
		t.Errorf("the driver does not answer: %v, %q", err, ran)
	}
}
