package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/system"

	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
)

// The GPUs of the specifications in testdata/cdi, which are like those of NVIDIA's toolkits of these versions.
const (
	cdiGPU   = "GPU-11111111-1111-4111-8111-111111111111" // nvidia0, at 0000:17:00.0
	cdiOther = "GPU-22222222-2222-4222-8222-222222222222" // nvidia1, at 0000:3b:00.0
	cdiSlice = "MIG-33333333-3333-4333-8333-333333333333" // of nvidia2, at 0000:5e:00.0
)

// cdiMachine is the host that these specifications were generated on.
type cdiMachine struct {
	root  string
	nodes map[string]cdiNumber
	gone  []string // files that are not there
}

func newCDIMachine(t *testing.T) *cdiMachine {
	m := &cdiMachine{root: t.TempDir(), nodes: map[string]cdiNumber{
		"/dev/nvidiactl": {195, 255}, "/dev/nvidia-modeset": {195, 254}, "/dev/nvidia-uvm": {508, 0},
		"/dev/nvidia-uvm-tools": {508, 1}, "/dev/nvidia-caps/nvidia-cap21": {235, 21},
		"/dev/nvidia-caps/nvidia-cap22": {235, 22}, "/dev/nvidia-caps/nvidia-cap30": {235, 30},
	}}
	for i, pci := range []string{"0000:17:00.0", "0000:3b:00.0", "0000:5e:00.0"} {
		uuid := []string{cdiGPU, cdiOther, "GPU-33333333-3333-4333-8333-333333333333"}[i]
		m.information(t, pci, uuid, i)
		card, render := fmt.Sprintf("card%d", i+1), fmt.Sprintf("renderD%d", 128+i)
		for _, name := range []string{card, render} {
			sysfstest.Write(t, m.root, "devices/"+pci+"/drm/"+name+"/dev", "")
			sysfstest.Link(t, m.root, "sys/class/drm/"+name, "devices/"+pci+"/drm/"+name)
			sysfstest.Link(t, m.root, "devices/"+pci+"/drm/"+name+"/device", "devices/"+pci)
		}
		m.nodes[fmt.Sprintf("/dev/nvidia%d", i)] = cdiNumber{195, uint32(i)}
		m.nodes["/dev/dri/"+card] = cdiNumber{226, uint32(i + 1)}
		m.nodes["/dev/dri/"+render] = cdiNumber{226, uint32(128 + i)}
	}
	m.right(t, "gpu2/mig/gi1/access", 21)
	m.right(t, "gpu2/mig/gi1/ci0/access", 22)
	m.right(t, "gpu2/mig/gi2/ci0/access", 30)
	return m
}

func (m *cdiMachine) information(t *testing.T, pci, uuid string, minor int) {
	sysfstest.Write(t, m.root, "proc/driver/nvidia/gpus/"+pci+"/information", fmt.Sprintf("Model: \t\t NVIDIA H100\n"+
		"GPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", uuid, pci, minor))
}

func (m *cdiMachine) right(t *testing.T, name string, minor int) {
	sysfstest.Write(t, m.root, "proc/driver/nvidia/capabilities/"+name,
		fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor))
}

func (m *cdiMachine) read(dirs ...string) CDI {
	return cdiHost{root: m.root, exists: func(path string) bool { return !slices.Contains(m.gone, path) },
		node: func(path string) (cdiNumber, error) {
			if n, ok := m.nodes[path]; ok {
				return n, nil
			}
			return cdiNumber{}, errors.New("is not there")
		}}.read(dirs, nil)
}

// folder returns a folder with one of the specifications, in which each first text is replaced by the second.
func folder(t *testing.T, toolkit string, change ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/cdi", toolkit+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(change...).Replace(string(b))
	if len(change) > 0 && text == string(b) {
		t.Fatalf("%s.yaml has no %q", toolkit, change[0])
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

var cdiAll = []string{cdiGPU, cdiOther, cdiSlice}

func TestCDI_SpecificationsOfToolkits(t *testing.T) {
	t.Parallel()
	for _, toolkit := range []string{"1.14", "1.16", "1.18", "1.20"} {
		m := newCDIMachine(t)
		c := m.read(folder(t, toolkit))
		if !c.usable(cdiAll) || c.problem(cdiAll) != nil || len(c.Devices) != 7 || c.stale() != nil {
			t.Errorf("%s: %+v", toolkit, c)
		}
		// The driver's modules got another number at a boot.
		m.nodes["/dev/nvidia-uvm"], m.nodes["/dev/nvidia-uvm-tools"] = cdiNumber{507, 0}, cdiNumber{507, 1}
		if c := m.read(folder(t, toolkit)); c.usable(cdiAll) != (toolkit != "1.20") {
			t.Errorf("%s, nvidia-uvm has another number: %+v", toolkit, c)
		}
		m.nodes["/dev/nvidia-caps/nvidia-cap21"] = cdiNumber{236, 21}
		if c := m.read(folder(t, toolkit)); c.usable([]string{cdiSlice}) != (toolkit != "1.20") {
			t.Errorf("%s, nvidia-caps has another number: %+v", toolkit, c)
		}
	}
}

// Each thing that would keep a container from starting, or give it another device, is found, and concerns the devices
// that it is about.
func TestCDI_Flaws(t *testing.T) {
	t.Parallel()
	const lib = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"
	for name, tc := range map[string]struct {
		edit   []string
		change func(*testing.T, *cdiMachine)
		broken []string // devices
		text   string
	}{
		"a library of the old driver": {nil, func(_ *testing.T, m *cdiMachine) { m.gone = []string{lib} }, cdiAll,
			"nvidia.yaml: " + lib + " is not there"},
		"the hook's program": {nil, func(_ *testing.T, m *cdiMachine) { m.gone = []string{"/usr/bin/nvidia-cdi-hook"} },
			cdiAll, "nvidia-cdi-hook is not there"},
		"a node that is gone": {nil, func(_ *testing.T, m *cdiMachine) { delete(m.nodes, "/dev/dri/renderD129") },
			[]string{cdiOther}, "/dev/dri/renderD129 is not there"},
		"a node for all that is gone": {nil, func(_ *testing.T, m *cdiMachine) { delete(m.nodes, "/dev/nvidia-modeset") },
			cdiAll, "/dev/nvidia-modeset is not there"},
		"GPUs changed places": {nil, func(t *testing.T, m *cdiMachine) {
			m.information(t, "0000:17:00.0", cdiOther, 0)
			m.information(t, "0000:3b:00.0", cdiGPU, 1)
		}, []string{cdiGPU, cdiOther}, "nvidia0 is not the node of " + cdiGPU + ", which is nvidia1"},
		"cards changed places": {nil, func(t *testing.T, m *cdiMachine) {
			m.information(t, "0000:3c:00.0", cdiOther, 1)
			if err := os.RemoveAll(filepath.Join(m.root, "proc/driver/nvidia/gpus/0000:3b:00.0")); err != nil {
				t.Fatal(err)
			}
		}, []string{cdiOther}, "is the device at 0000:3b:00.0, " + cdiOther + " is at 0000:3c:00.0"},
		"another GPU for all": {[]string{"  - path: /dev/nvidiactl\n", "  - path: /dev/nvidiactl\n  - path: /dev/nvidia1\n"},
			nil, []string{cdiGPU, cdiSlice}, "/dev/nvidia1 is not the node of " + cdiGPU},
		"a block device": {[]string{"  - path: /dev/nvidiactl\n", "  - path: /dev/nvidiactl\n    type: b\n"}, nil, cdiAll,
			`/dev/nvidiactl is a character device, not of type "b"`},
		"a host path elsewhere": {[]string{"  - path: /dev/nvidiactl\n",
			"  - path: /dev/nvidiactl\n    hostPath: /run/nvidia/driver/dev/nvidiactl\n"}, nil, cdiAll,
			"/run/nvidia/driver/dev/nvidiactl is not there"},
		"no GPU": {[]string{"    - path: /dev/nvidia0\n", ""}, nil, []string{cdiGPU},
			"does not give " + cdiGPU + " its node"},
		"slices without nodes": {[]string{"    - path: /dev/nvidia-caps/nvidia-cap21\n", "",
			"    - path: /dev/nvidia-caps/nvidia-cap22\n", ""}, nil, []string{cdiSlice}, "names nothing in /dev/nvidia-caps"},
		"half of a slice": {[]string{"    - path: /dev/nvidia-caps/nvidia-cap21\n", ""}, nil, []string{cdiSlice},
			"names nvidia-cap22 in"},
		"slices were made again": {nil, func(t *testing.T, m *cdiMachine) {
			m.right(t, "gpu2/mig/gi1/ci0/access", 44)
			m.right(t, "gpu2/mig/gi2/ci0/access", 22)
		}, []string{cdiSlice}, "not those of one MIG device"},
		"the right to change layouts": {[]string{"nvidia-cap21", "nvidia-cap1", "nvidia-cap22", "nvidia-cap2"},
			func(_ *testing.T, m *cdiMachine) {
				m.nodes["/dev/nvidia-caps/nvidia-cap1"] = cdiNumber{235, 1}
				m.nodes["/dev/nvidia-caps/nvidia-cap2"] = cdiNumber{235, 2}
			}, []string{cdiSlice}, "names nvidia-cap1, nvidia-cap2 in"},
		"a device twice": {[]string{"name: \"1\"", "name: \"0\""}, nil, cdiAll, "it names the device 0 twice"},
		"no YAML":        {[]string{"kind: nvidia.com/gpu", "kind: [nvidia.com/gpu"}, nil, cdiAll, "cannot be read"},
	} {
		m := newCDIMachine(t)
		if tc.change != nil {
			tc.change(t, m)
		}
		c := m.read(folder(t, "1.18", tc.edit...))
		for _, uuid := range cdiAll {
			if c.usable([]string{uuid}) == slices.Contains(tc.broken, uuid) {
				t.Errorf("%s: %s usable: %t, %+v", name, uuid, c.usable([]string{uuid}), c)
			}
		}
		if p := c.problem(tc.broken); p == nil || !strings.Contains(p.Evidence, tc.text) ||
			!strings.Contains(p.Evidence, "nvidia.yaml: ") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Of two specifications with one device, the one in the later folder counts; two in one folder make it disappear.
func TestCDI_Precedence(t *testing.T) {
	t.Parallel()
	m := newCDIMachine(t)
	stale, fresh := folder(t, "1.18", "libcuda.so.580.65.06", "libcuda.so.580.1"), folder(t, "1.18")
	m.gone = []string{"/usr/lib/x86_64-linux-gnu/libcuda.so.580.1"}
	if c := m.read(stale, fresh); !c.usable(cdiAll) || c.problem(cdiAll) != nil || len(c.Missing) != 0 ||
		len(c.Stale) != 1 || !strings.Contains(c.stale().Evidence, stale+"/nvidia.yaml: ") {
		t.Errorf("a fresh one hides a stale one: %+v", c)
	}
	if c := m.read(fresh, stale); c.usable(cdiAll) || !slices.Equal(c.Missing, m.gone) || len(c.Stale) != 0 {
		t.Errorf("a stale one hides a fresh one: %+v", c)
	}
	if c := m.read(stale, fresh); !c.Renewable(fresh, "nvidia.yaml") || c.Renewable(stale, "nvidia.yaml") ||
		c.Renewable(fresh, "other.yaml") || m.read().Renewable("", "") {
		t.Error("a specification that is written to the last folder is used, unless another file there has the devices too")
	}
	// The later one has one of the devices only.
	one := folder(t, "1.18", cdiOther, "GPU-9", cdiSlice, "MIG-9")
	if c := m.read(stale, one); !c.usable([]string{cdiGPU}) || c.usable([]string{cdiOther}) || len(c.Stale) != 0 {
		t.Errorf("%+v", c)
	}
	b, err := os.ReadFile(fresh + "/nvidia.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old.yaml", "nvidia.yml"} { // Docker does not read the second
		if err := os.WriteFile(filepath.Join(fresh, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	discovered := []system.DeviceInfo{{Source: "cdi", ID: cdiKind + "=something"}}
	for _, c := range []CDI{m.read(fresh), m.read(fresh, one), readCDI([]string{fresh}, discovered)} {
		p := c.problem([]string{cdiGPU})
		if c.usable([]string{cdiGPU}) || p == nil || !strings.Contains(p.Evidence, fresh+"/old.yaml, in one folder") {
			t.Errorf("twice in one folder: %+v", p)
		}
	}
}

// The hook refuses to work in every mode but its own.
func TestHookRefuses(t *testing.T) {
	t.Parallel()
	const table = "disable-require = false\n\n[nvidia-container-runtime]\n#mode = \"csv\"\nlog-level = \"info\"\n"
	const file = "etc/nvidia-container-runtime/config.toml"
	for text, refuses := range map[string]bool{
		"":                                   false,
		table:                                false,
		table + "mode = \"auto\"\n":          false,
		table + "mode = 'legacy' # or cdi\n": false,
		table + "  mode=\"cdi\" # \"auto\"":  true,
		table + "mode = \"jit-cdi\"\n\n[nvidia-container-runtime.modes]\nmode = \"auto\"\n": true,
		table + "mode = \"csv\"\n":                  true,
		"nvidia-container-runtime.mode = \"cdi\"\n": true,
		"[other]\nmode = \"cdi\"\n":                 false,
		table + "mode = \"cdi\"\n[nvidia-container-runtime-hook]\nskip-mode-detection = true # ours\n": false,
	} {
		root := t.TempDir()
		sysfstest.Write(t, root, file, text)
		if why := hookRefuses(root); (why != "") != refuses || refuses && !strings.Contains(why, root+"/"+file+" sets mode") {
			t.Errorf("%q: %q", text, why)
		}
		sysfstest.Write(t, root, "run/nvidia/driver/"+file, "") // of a driver in a container, which comes first
		if why := hookRefuses(root); why != "" {
			t.Errorf("%q: %q", text, why)
		}
	}
	if why := hookRefuses(t.TempDir()); why != "" {
		t.Error(why)
	}
	f := Facts{HookRefuses: "config.toml sets mode = \"cdi\""}
	gpus := []string{cdiGPU}
	if p := f.AttachProblem(gpus); p == nil || p.Severity != "bad" || p.Evidence != f.HookRefuses {
		t.Errorf("%+v", p)
	}
	f.CDI = CDI{Devices: gpus, Files: []string{"f"}, Wrong: map[string][]string{cdiGPU: {"f: x is not there"}}}
	if p := f.AttachProblem(gpus); p == nil || p.Severity != "bad" ||
		p.Evidence != "f: x is not there; "+f.HookRefuses {
		t.Errorf("%+v", p)
	}
	f.CDI.Wrong = nil
	if mode, ok := f.Attach(gpus); !ok || mode != AttachCDI || f.AttachProblem(gpus) != nil {
		t.Errorf("CDI needs no hook: %s", mode)
	}
}

// Advice never leaves a specification behind that nothing keeps up to date.
func TestDescribeGPUs(t *testing.T) {
	t.Parallel()
	for toolkit, want := range map[string][2]bool{"": {true, true}, "1.17.8": {false, true}, "1.18.0": {true, false},
		"1.20.1": {true, false}} {
		text := describeGPUs(toolkit)
		if strings.Contains(text, "systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service") != want[0] ||
			strings.Contains(text, "--output=/var/run/cdi/nvidia.yaml") != want[1] ||
			!strings.Contains(text, "delete /etc/cdi/nvidia.yaml") || strings.Contains(text, "--output=/etc/cdi") {
			t.Errorf("%q: %s", toolkit, text)
		}
	}
}
