package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// newHost is a machine of an operator: an agent with a state folder and GPUs of its own.
type newHost struct {
	p     *platform
	state string
	uuids []string // of its GPUs
	env   []string
	flags []string // of muster-agent run, in addition to ours
	run   *exec.Cmd
	ended chan struct{}
}

// newHost makes a machine with simulated GPUs. What runs on it ends with the test, and leaves nothing.
func (p *platform) newHost(t *testing.T, name, model string, gpus int) *newHost {
	t.Helper()
	dir := filepath.Join(p.dir, "hosts", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	profile, err := fakeprofile.Host(model, gpus, t.Name()+name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "gpus.profile")
	if err := profile.Save(file); err != nil {
		t.Fatal(err)
	}
	var uuids []string
	for _, g := range profile.GPUs {
		uuids = append(uuids, g.UUID)
	}
	h := &newHost{p: p, state: filepath.Join(dir, "state"), uuids: uuids, env: append(os.Environ(),
		fakeprofile.Env+"="+file, "MUSTER_NVML_LIBRARY="+filepath.Join(bin, "fakenvml", "libnvidia-ml.so.1"))}
	t.Cleanup(func() { h.close(t) })
	return h
}

func (h *newHost) agent(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "muster-agent"), append(args, "--state", h.state)...)
	cmd.Env = h.env
	return cmd
}

// enroll runs the enrolment command with a token on its standard input, as the documentation shows operators.
func (h *newHost) enroll(token string) (string, error) {
	cmd := h.agent("enroll", "--url", h.p.AgentURL, "--ca", filepath.Join(h.p.dir, "tls", "ca.pem"), "--advertise",
		"127.0.0.1")
	cmd.Stdin = strings.NewReader(token)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *newHost) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(h.state+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h.run = h.agent(append([]string{"run", "--guest", filepath.Join(bin, "muster-guest"), "--allow-registry",
		h.p.registry(), "--advertise", "127.0.0.1"}, h.flags...)...)
	h.run.Stdout, h.run.Stderr = log, log
	h.run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan struct{})
	if err := startChild(h.run, func(error) { close(ended) }); err != nil {
		t.Fatal(err)
	}
	h.ended = ended
}

func (h *newHost) close(t *testing.T) {
	if h.run == nil {
		return
	}
	_ = h.run.Process.Signal(syscall.SIGTERM)
	<-h.ended
	if t.Failed() {
		t.Log(tail(h.state+".log", 30))
	}
	if out, err := h.agent("purge", "--images").CombinedOutput(); err != nil {
		t.Errorf("purge: %v\n%s", err, out)
	}
}

// An operator enrols a machine, prices it, sees it rented and earning, takes it out in order, and retires it.
func TestAnOperatorsJourney(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	operator := p.as(t, p.OperatorToken)
	enrollment, err := operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: "third",
		Region: "eu-west", Fabric: ""})
	if err != nil || !strings.Contains(enrollment.Command, p.URL+"/install-agent.sh") {
		t.Fatalf("%+v %v", enrollment, err)
	}
	h := p.newHost(t, "third", "NVIDIA GeForce RTX 4090", 2)
	if out, err := h.enroll("muster_enr_nonsense"); err == nil {
		t.Errorf("enrolled with nonsense: %s", out)
	}
	if out, err := h.enroll(enrollment.Token); err != nil {
		t.Fatalf("enrol: %v\n%s", err, out)
	}
	thief := p.newHost(t, "thief", "NVIDIA GeForce RTX 4090", 2)
	if out, err := thief.enroll(enrollment.Token); err == nil || !strings.Contains(out, "used") {
		t.Errorf("a used token: %v: %s", err, out)
	}
	var who struct {
		Host id.Host `json:"host"`
	}
	if err := readJSON(filepath.Join(h.state, "identity.json"), &who); err != nil {
		t.Fatal(err)
	}
	h.start(t)
	host := func(what string, ok func(client.Host) bool) client.Host {
		t.Helper()
		var got client.Host
		eventually(t, what, func() (done bool) {
			if got, err = operator.Hosts.Get(t.Context(), who.Host); err != nil {
				t.Fatal(err)
			}
			return ok(got)
		})
		return got
	}
	got := host("the host is reachable", func(h client.Host) bool {
		return h.Reachable && len(h.GPUs) == 2 &&
			len(h.Offers) == 1
	})
	if got.Selling || got.NotSelling == "" || got.Region != "eu-west" || !got.Simulated || got.Offers[0].Price != nil {
		t.Errorf("before it has a price: %+v", got)
	}
	r := p.renter(t, 20*money.Unit)
	const query = "gpu_model=4090"
	listed := func() int {
		t.Helper()
		page, err := r.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{}, Q: query, Sort: ""})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Items)
	}
	if listed() != 0 {
		t.Error("listed without a price")
	}
	price := money.Micro(6_000_000) // dearer than the shared hosts: no other test rents here
	if _, err := operator.Hosts.Change(t.Context(), who.Host,
		client.ChangeHostRequest{Price: new(price.String())}); err != nil {
		t.Fatal(err)
	}
	host("the host sells", func(h client.Host) bool { return h.Selling })
	eventually(t, "the host is listed", func() bool { return listed() == 1 })

	spec := p.spec(1, 1, "sleep", "600")
	spec.GPU = query
	c := r.run(t, spec)
	if c.PricePerHour != price {
		t.Errorf("rented at %s", c.PricePerHour)
	}
	if _, err := operator.Hosts.Act(t.Context(), who.Host, client.ActOnHostRequest{Action: "drain"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Clusters.Rent(t.Context(), spec); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("rented on a draining host: %v", err)
	}
	if now, err := r.Clusters.Get(t.Context(), c.ID); err != nil || now.State != client.Running {
		t.Errorf("draining ended what runs: %s %v", now.State, err)
	}
	if _, err := operator.Hosts.Act(t.Context(), who.Host, client.ActOnHostRequest{Action: "retire"}); !fault.Is(err,
		fault.Conflict) {
		t.Errorf("retired a host in use: %v", err)
	}
	if _, err := operator.Hosts.Act(t.Context(), who.Host, client.ActOnHostRequest{Action: "resume"}); err != nil {
		t.Fatal(err)
	}
	second := r.run(t, spec) // the other GPU
	var usages []client.Usage
	for _, c := range []client.Cluster{c, second} {
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		usages = append(usages, r.settle(t, c))
	}
	r.owes(t, usages...)
	e, err := operator.Hosts.GetEarnings(t.Context(), who.Host)
	if err != nil || len(e.Leases) != 2 {
		t.Fatalf("%+v %v", e, err)
	}
	var sum money.Nano
	for i, l := range e.Leases {
		sum += l.Earned
		if share := money.Share(usages[0].Cost, 850_000); i == 0 && l.Earned != share &&
			l.Earned != money.Share(usages[1].Cost, 850_000) {
			t.Errorf("earned %s, want %s", l.Earned, share)
		}
	}
	if sum != e.Total || sum != money.Share(usages[0].Cost, 850_000)+money.Share(usages[1].Cost, 850_000) {
		t.Errorf("earned %s of %s and %s: %+v", e.Total, usages[0].Cost, usages[1].Cost, e)
	}
	if _, err := operator.Hosts.Act(t.Context(), who.Host, client.ActOnHostRequest{Action: "retire"}); err != nil {
		t.Fatal(err)
	}
	// a list may be market.MaxAge old
	eventually(t, "a retired host is listed no more", func() bool { return listed() == 0 })
	if _, err := r.Clusters.Rent(t.Context(), spec); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("rented on a retired host: %v", err)
	}
	h.retired(t)
	p.check(t)
	if books, err := p.as(t, p.AdminToken).Ledger.Get(t.Context()); err != nil || !books.Balanced {
		t.Errorf("an admin reads the ledger: %+v %v", books, err)
	}
}

// retired checks that a retired host's agent is let in no more.
func (h *newHost) retired(t *testing.T) {
	t.Helper()
	eventually(t, "the agent of a retired host says why it is not let in", func() bool {
		b, err := os.ReadFile(h.state + ".log")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(bytes.ToLower(b), []byte("retired")) || bytes.Contains(b, []byte("uthorization"))
	})
}

// The inventory command needs no server, and says what the machine has.
func TestInventoryWithoutAServer(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	h := p.newHost(t, "alone", "NVIDIA H100 80GB HBM3", 4)
	cmd := exec.Command(filepath.Join(bin, "muster-agent"), "inventory", "--json")
	cmd.Env = h.env
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), fmt.Sprintf("%q", "NVIDIA H100 80GB HBM3")) != 4 {
		t.Errorf("%v: %s", err, out)
	}
}
