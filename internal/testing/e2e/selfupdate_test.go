//go:build update

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// releases is a place that signed releases of the agent are fetched from.
type releases struct {
	*httptest.Server
	dir string
	key ed25519.PrivateKey
}

func newReleases(t *testing.T) *releases {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := &releases{dir: t.TempDir(), key: key}
	r.Server = httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	t.Cleanup(r.Close)
	return r
}

// build makes an agent of a version that knows the releases' key.
func (r *releases) build(t *testing.T, version string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "muster-agent")
	pinned := base64.StdEncoding.EncodeToString(r.key.Public().(ed25519.PublicKey))
	cmd := exec.Command("go", "build", "-o", out, "-ldflags", "-X main.version="+version+" -X main.releaseKeys="+pinned+
		" -extldflags=-Wl,-z,lazy", "./cmd/muster-agent")
	cmd.Dir, cmd.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=1")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", version, err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// publish adds a signed version to the others and returns its address.
func (r *releases) publish(t *testing.T, version string, agent []byte) string {
	t.Helper()
	guest, err := os.ReadFile(filepath.Join(bin, "muster-guest"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, program := range map[string][]byte{"muster-agent": agent, "muster-guest": guest} {
		if err := w.WriteHeader(&tar.Header{
			Name:     name,
			Mode:     0o755,
			Size:     int64(len(program)),
			Typeflag: tar.TypeReg,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(program); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir, name := filepath.Join(r.dir, version), "muster-agent-"+version+"-linux-"+runtime.GOARCH+".tar.gz"
	list := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b.Bytes()), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		name:             b.Bytes(),
		"SHA256SUMS":     list,
		"SHA256SUMS.sig": ed25519.Sign(r.key, list),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r.URL + "/" + version
}

// launch starts the host's agent as its service does, from a folder with one folder per version.
func (h *newHost) launch(t *testing.T, version string, agent []byte, source string) {
	t.Helper()
	lib := filepath.Join(filepath.Dir(h.state), "lib")
	dir := filepath.Join(lib, "versions", version)
	guest, err := os.ReadFile(filepath.Join(bin, "muster-guest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string][]byte{"muster-agent": agent, "muster-guest": guest} {
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join("versions", version), filepath.Join(lib, "current")); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(h.state+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h.run = exec.Command(filepath.Join(lib, "current", "muster-agent"), "launch", "--state", h.state, "--allow-registry",
		h.p.registry(),
		"--allow-source", strings.TrimPrefix(source, "http://"), "--probation", "2s", "--advertise", "127.0.0.1")
	h.run.Env, h.run.Stdout, h.run.Stderr = h.env, log, log
	h.run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan struct{})
	if err := startChild(h.run, func(error) { close(ended) }); err != nil {
		t.Fatal(err)
	}
	h.ended = ended
}

// A host replaces its agent by a newer one, and goes back from one that does not work, while a job runs on it: the job
// is not touched, and its renter pays one whole stretch of time.
func TestAnAgentReplacesItself(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	shop := newReleases(t)
	old, next := shop.build(t, "v1.0.0"), shop.build(t, "v1.1.0")
	operator, admin := p.as(t, p.OperatorToken), p.as(t, p.AdminToken)
	enrollment, err := operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: "replaces",
		Region: "eu-west", Fabric: ""})
	if err != nil {
		t.Fatal(err)
	}
	h := p.newHost(t, "replaces", "NVIDIA A100-SXM4-80GB", 1)
	if out, err := h.enroll(enrollment.Token); err != nil {
		t.Fatalf("enrol: %v\n%s", err, out)
	}
	var who struct {
		Host id.Host `json:"host"`
	}
	if err := readJSON(filepath.Join(h.state, "identity.json"), &who); err != nil {
		t.Fatal(err)
	}
	h.launch(t, "v1.0.0", old, shop.URL)
	host := func(what string, ok func(client.Host) bool) (got client.Host) {
		t.Helper()
		eventually(t, what, func() bool {
			if got, err = operator.Hosts.Get(t.Context(), who.Host); err != nil {
				t.Fatal(err)
			}
			return ok(got)
		})
		return got
	}
	host("the host is reachable", func(h client.Host) bool {
		return h.Reachable && len(h.Offers) == 1 && h.AgentVersion == "v1.0.0" && len(h.Agent.Capabilities) > 0
	})
	channel := func(version, source string) {
		t.Helper()
		if _, err := admin.Admin.SetAgentChannel(t.Context(), "replaces", client.SetAgentChannelRequest{
			Version: version,
			Source:  source,
			Percent: 100,
		}); err != nil {
			t.Fatal(err)
		}
	}
	price, name := money.Micro(7_000_000), "replaces"
	channel("v1.0.0", shop.URL) // what it runs: nothing to do
	if _, err := operator.Hosts.Change(t.Context(), who.Host, client.ChangeHostRequest{Price: new(price.String()),
		Channel: &name}); err != nil {
		t.Fatal(err)
	}
	host("the host sells", func(h client.Host) bool { return h.Selling })

	r := p.renter(t, 20*money.Unit)
	spec := p.spec(1, 1, "sleep", "3600")
	spec.GPU = "gpu_model=A100"
	var c client.Cluster
	eventually(t, "the host is listed", func() bool { c, err = r.Clusters.Rent(t.Context(), spec); return err == nil })
	c = r.await(t, c, client.Running)
	running := func() string {
		return strings.Join(p.docker("ps", "--no-trunc", "--filter", "label=muster.host="+who.Host.String(), "--format",
			"{{.ID}} {{.CreatedAt}}"), "\n")
	}
	before := running()

	channel("v1.1.0", shop.publish(t, "v1.1.0", next))
	host("the new version runs and is kept", func(h client.Host) bool {
		return h.AgentVersion == "v1.1.0" &&
			h.Agent.State == "done"
	})
	broken := []byte(`#!/bin/sh
case $1 in
version) echo "muster-agent v1.2.0 (protocol 1)" ;;
doctor) echo '[{"check":"rights","state":"ok"}]' ;;
run) echo "it does not work" >&2; exit 4 ;;
esac
`)
	channel("v1.2.0", shop.publish(t, "v1.2.0", broken))
	back := host("the broken version is given up", func(h client.Host) bool {
		return h.AgentVersion == "v1.1.0" &&
			h.Agent.State == "rolled_back"
	})
	if !strings.Contains(back.Agent.Detail, "exit status 4") || back.Agent.Update != "v1.2.0" {
		t.Errorf("%+v", back.Agent)
	}
	agents, err := admin.Admin.ListAgents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range agents.Channels {
		if x.Name == "replaces" && x.Stopped == "" {
			t.Errorf("a version that the only host gave up goes on: %+v", x)
		}
	}
	if after := running(); after != before || before == "" {
		t.Errorf("the job's containers were:\n%s\nand are:\n%s", before, after)
	}
	if now, err := r.Clusters.Get(t.Context(), c.ID); err != nil || now.State != client.Running {
		t.Errorf("%s %v\n%s", now.State, err, r.timeline(t, c))
	}
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	u := r.settle(t, c)
	r.billed(t, c, u)
	r.owes(t, u)
	if n := p.sql(t, `SELECT count(*) FROM cluster_window WHERE cluster_id = $1`, c.ID); n != 1 {
		t.Errorf("%d windows\n%s", n, r.timeline(t, c))
	}
	if _, err := operator.Hosts.Act(t.Context(), who.Host, client.ActOnHostRequest{Action: "retire"}); err != nil {
		t.Fatal(err)
	}
}
