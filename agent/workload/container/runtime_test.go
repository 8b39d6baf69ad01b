package container

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/testnet"
)

func docker(runtimes map[string]system.Runtime) Facts {
	with := map[string]system.RuntimeWithStatus{}
	for name, r := range runtimes {
		with[name] = system.RuntimeWithStatus{Runtime: r}
	}
	f := Facts{Version: "27", Runsc: runscOf(with), Driver: "550.90.07"}
	if f.Runsc != nil {
		f.Runsc.Drivers = []string{"535.183.01", "550.90.07", "560.35.03"}
	}
	return f
}

// gVisor is offered where it could run a node: in the network namespace it is given, and with its passage to the GPUs.
func TestWhenGVisorIsOffered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		runtimes map[string]system.Runtime
		gpus     bool
		offered  bool
		evidence string // of the problem; "" = there is none
	}{
		{"none", map[string]system.Runtime{"runc": {Path: "runc"}}, true, false, ""},
		{"bare", map[string]system.Runtime{"runsc": {Path: "/usr/bin/runsc"}}, true, false,
			"--network=host and --host-uds=open and --nvproxy"},
		{"no passage", map[string]system.Runtime{"runsc": {
			Path: "/usr/bin/runsc",
			Args: []string{"--network=host", "--host-uds=open"},
		}}, true, false, "without --nvproxy"},
		{"passage off", map[string]system.Runtime{"runsc": {Args: []string{"--network=host", "--host-uds=all",
			"--nvproxy=false"}}}, true, false, "without --nvproxy"},
		{"own network", map[string]system.Runtime{"runsc": {Args: []string{"--network=sandbox", "-host-uds=open",
			"--nvproxy"}}}, true, false, "without --network=host"},
		{"whole", map[string]system.Runtime{"runsc": {Args: []string{"--network=host", "--fsgofer-host-uds", "-nvproxy"}}},
			true, true, ""},
		{"no socket", map[string]system.Runtime{"runsc": {Args: []string{"--network=host", "--host-uds=none", "-nvproxy"}}},
			true, false, "without --host-uds=open"},
		{"simulated GPUs", map[string]system.Runtime{"runsc": {Args: []string{"--network=host", "--host-uds=open"}}}, false,
			true, ""},
		{"other name", map[string]system.Runtime{"gvisor": {
			Path: "/opt/runsc",
			Args: []string{"--network=host", "--host-uds=open", "--nvproxy=true"},
		}}, true, true, ""},
	} {
		got, problems := docker(c.runtimes).Runtimes(c.gpus)
		if !slices.Contains(got, "runc") || slices.Contains(got, "runsc") != c.offered ||
			(len(problems) == 1) != (c.evidence != "") {
			t.Errorf("%s: %v %+v", c.name, got, problems)
		}
		if c.evidence != "" && !strings.Contains(problems[0].Evidence, c.evidence) {
			t.Errorf("%s: %+v", c.name, problems)
		}
	}
	if got, _ := (Facts{}).Runtimes(true); got != nil {
		t.Errorf("a Docker that does not answer has %v", got)
	}
}

// With GPUs, gVisor is offered for the drivers only that it says it supports, and not if it does not say.
func TestGVisorIsAskedWhichDriversItSupports(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "runsc")
	list := "#!/bin/sh\n[ \"$*\" = 'nvproxy list-supported-drivers' ] && printf '535.183.01\\n550.90.07\\n'\n"
	if err := os.WriteFile(script, []byte(list), 0o755); err != nil {
		t.Fatal(err)
	}
	facts := func(path, driver string) Facts {
		r := &Runsc{Name: "runsc", Path: path, Args: []string{"--network=host", "--host-uds=open", "--nvproxy"}}
		r.listDrivers(t.Context())
		return Facts{Version: "27", Runsc: r, Driver: driver}
	}
	if got, problems := facts(script, "550.90.07").Runtimes(true); len(got) != 2 || problems != nil {
		t.Errorf("a driver on the list: %v %+v", got, problems)
	}
	for name, f := range map[string]Facts{
		"driver 570.86.15; runsc":     facts(script, "570.86.15"),
		"no such file or directory":   facts(script+"-none", "550.90.07"),
		"driver ; runsc nvproxy list": facts(script, ""),
	} {
		got, problems := f.Runtimes(true)
		if len(got) != 1 || len(problems) != 1 || !strings.Contains(problems[0].Evidence, name) {
			t.Errorf("%s: %v %+v", name, got, problems)
		}
		if got, _ := f.Runtimes(false); len(got) != 2 {
			t.Errorf("%s: without GPUs %v", name, got)
		}
	}
}

// The workload, not the guest, is created with the requested runtime, and a missing one is refused by name. A stand-in
// answers to runsc here: runc behind a script that takes runsc's flags. The test only shows that Docker gets a request
// for the right one.
func TestTheRuntimeThatIsAskedFor(t *testing.T) {
	t.Parallel()
	e, spec, files := setUp(t)
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	net := testnet.New(t)
	script := filepath.Join(net.Dir(), "runsc")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nshift 2\nexec "+runc+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	other := net.Host("gvisor").DockerWith(`{"runtimes": {"gvisor": {"path": "` + script +
		`", "runtimeArgs": ["--network=host", "--host-uds=open"]}}}`)
	with, err := New(Config{
		Docker:      other.Socket,
		Host:        id.New[id.Host](),
		GuestBinary: e.cfg.GuestBinary,
		Simulated:   true,
		Overlay:     netip.MustParsePrefix("10.77.0.0/20"),
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer with.Close()
	spec.Command = []string{"/nothing"}
	runtimes := func(e *Engine, spec agentapi.LeaseSpec, files leasefiles.Layout) (guest, work string, err error) {
		t.Helper()
		g, err := e.EnsureGuest(t.Context(), spec, files)
		if err != nil {
			t.Fatal(err)
		}
		w, err := e.EnsureWorkload(t.Context(), WorkloadSpec{Lease: spec, Guest: g.ID, ImageID: baseImage, Files: files})
		if err != nil {
			return "", "", err
		}
		runtime := func(id string) string {
			raw, err := e.docker.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return raw.Container.HostConfig.Runtime
		}
		return runtime(g.ID), runtime(w.ID), nil
	}
	refusedFor := func(err error, what string) {
		t.Helper()
		var r Refusal
		if !errors.As(err, &r) || r.Reason != agentapi.ReasonNotOffered || !strings.Contains(r.Detail, what) {
			t.Errorf("%v, want a refusal that names %s", err, what)
		}
	}

	wants := spec
	wants.Runtime = agentapi.RuntimeRunsc
	_, _, err = runtimes(e, wants, files)
	refusedFor(err, "no runtime runsc")
	wants.Runtime, wants.DiskLimited, wants.DiskGB = "", true, 1
	if !e.Facts(t.Context()).DiskLimited {
		_, _, err = runtimes(e, wants, files)
		refusedFor(err, "disk_gb cannot be enforced")
	}
	if guest, work, err := runtimes(e, spec, files); err != nil || guest != "runc" || work != "runc" {
		t.Errorf("guest %q, workload %q: %v", guest, work, err)
	}

	wants.Runtime, wants.DiskLimited = agentapi.RuntimeRunsc, false
	if guest, work, err := runtimes(with, wants, files); err != nil || guest != "runc" || work != "gvisor" {
		t.Errorf("guest %q, workload %q: %v", guest, work, err)
	}
}
