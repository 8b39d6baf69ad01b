package testfield

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// Box is a host: a machine with an engine, and an enrolled agent.
type Box struct {
	*testnet.Host
	field  *Field
	ID     id.Host
	Link   *testnet.Link
	Engine *testnet.Docker
	Agent  *Daemon
}

// Box adds a host with one GPU to a network, and returns when it can be rented at the given price per hour.
func (f *Field) Box(t testing.TB, name string, s *testnet.Segment, gateway, price string, addresses ...string) *Box {
	t.Helper()
	b := &Box{Host: f.Net.Host(name), field: f}
	b.Link = b.Join(s, addresses...)
	if gateway != "" {
		b.Route("default", gateway)
	}
	knowsNames(t, b.Host)
	b.Engine = b.DockerWith(cmp.Or(f.EngineJSON, "{}"))
	profile := filepath.Join(b.Dir(), "gpus.profile")
	gpus, err := fakeprofile.Host("NVIDIA H100 80GB HBM3", 1, f.Net.Dir()+name)
	if err == nil {
		err = gpus.Save(profile)
	}
	if err != nil {
		t.Fatal(err)
	}
	env := []string{fakeprofile.Env + "=" + profile, "MUSTER_NVML_LIBRARY=" + filepath.Join(f.bin, "fakenvml",
		"libnvidia-ml.so.1")}
	agent, state := filepath.Join(f.bin, "muster-agent"), filepath.Join(b.Dir(), "state")
	token, err := f.Operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: name,
		Region: "home", Fabric: ""})
	if err != nil {
		t.Fatal(err)
	}
	enroll := b.Command(t.Context(), agent, "enroll", "--state", state, "--docker", b.Engine.Socket, "--url", AgentURL,
		"--ca", f.CA())
	enroll.Env, enroll.Stdin = append(os.Environ(), env...), strings.NewReader(token.Token)
	if out, err := enroll.CombinedOutput(); err != nil {
		t.Fatalf("%s: enrol: %v\n%s", name, err, out)
	}
	var who struct{ Host id.Host }
	identity, err := os.ReadFile(filepath.Join(state, "identity.json"))
	if err == nil {
		err = json.Unmarshal(identity, &who)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.ID, f.Boxes[who.Host] = who.Host, b
	b.Agent = &Daemon{host: b.Host, env: env, argv: []string{agent, "run", "--state", state, "--docker", b.Engine.Socket,
		"--guest", filepath.Join(f.bin, "muster-guest"), "--allow-registry", cloudName + ":5000"}}
	b.Agent.Start(t)
	micro, err := money.ParseMicro(price)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Operator.Hosts.Change(t.Context(), b.ID,
		client.ChangeHostRequest{Price: new(micro.String())}); err != nil {
		t.Fatal(err)
	}
	b.AwaitSelling(t)
	return b
}

// AwaitSelling waits until the host can be rented.
func (b *Box) AwaitSelling(t testing.TB) {
	t.Helper()
	var last client.Host
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", b.Name, last)
		}
	}()
	await(t, b.Name+" is for rent", func() bool {
		h, err := b.field.Operator.Hosts.Get(t.Context(), b.ID)
		last = h
		return err == nil && h.Selling && h.Reachable
	})
}

// Left lists what the host still has of leases.
func (b *Box) Left() []string {
	out := strings.Fields(b.Engine.Do("ps", "--all", "--quiet", "--filter", "label=muster.host="+b.ID.String()))
	for _, pid := range b.Processes("muster-agent overlay ") {
		out = append(out, fmt.Sprintf("overlay %d", pid))
	}
	return out
}

// SignalContainer sends a signal, such as KILL, to the first process of the host's running guest or work containers, as
// the kernel would. It reports whether there is such a container.
func (b *Box) SignalContainer(role, signal string) (done bool) {
	engine := func(args ...string) string { // prints nothing while the engine is dead
		out, _ := exec.Command("docker", append([]string{"-H", b.Engine.Socket}, args...)...).Output()
		return string(out)
	}
	for _, id := range strings.Fields(engine("ps", "--no-trunc", "--quiet", "--filter", "label=muster.role="+role)) {
		// The id is the host's own number of the process.
		pid := strings.TrimSpace(engine("inspect", "--format", "{{.State.Pid}}", id))
		done = pid != "" && pid != "0" && b.Command(context.Background(), "kill", "-"+signal, pid).Run() == nil || done
	}
	return done
}

// KillAll kills the host's processes whose command line contains a text, at least one, and returns when they are gone.
func KillAll(t testing.TB, h *testnet.Host, text string) {
	t.Helper()
	await(t, "there is a "+text+" to kill on "+h.Name, func() bool { return len(h.Processes(text)) > 0 })
	for _, pid := range h.Processes(text) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	await(t, text+" of "+h.Name+" is gone", func() bool { return len(h.Processes(text)) == 0 })
}

// Daemon is a program of a machine that can be killed and started again.
type Daemon struct {
	host *testnet.Host
	argv []string
	env  []string
}

func (d *Daemon) log() string { return filepath.Join(d.host.Dir(), filepath.Base(d.argv[0])+".log") }

// Start starts it.
func (d *Daemon) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := d.host.Command(context.Background(), d.argv[0], d.argv[1:]...)
	cmd.Env = append(os.Environ(), d.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait() // it ends with its machine at the latest
}

// Kill kills it and returns when it is gone.
func (d *Daemon) Kill(t testing.TB) {
	t.Helper()
	KillAll(t, d.host, d.argv[0]+" "+d.argv[1])
}
