package update

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// shop serves releases.
type shop struct {
	*httptest.Server
	key   ed25519.PrivateKey
	mu    sync.Mutex
	files map[string][]byte
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)), files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		b, ok := s.files[strings.TrimPrefix(r.URL.Path, "/")]
		s.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) put(name string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = b
}

// release puts a version whose programs are the files into the shop, signed.
func (s *shop) release(version string, files map[string]string) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg})
		w.Write([]byte(text))
	}
	w.Close()
	z.Close()
	name := "muster-agent-" + version + "-linux-" + runtime.GOARCH + ".tar.gz"
	s.put(name, b.Bytes())
	s.list(fmt.Sprintf("%x  %s\n", sha256.Sum256(b.Bytes()), name))
}

func (s *shop) list(text string) {
	s.put("SHA256SUMS", []byte(text))
	s.put("SHA256SUMS.sig", ed25519.Sign(s.key, []byte(text)))
}

func (s *shop) pinned() string {
	return base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// updater is one of the place's version v, which runs until the test ends.
func (p *place) updater(v string, s *shop, probation time.Duration) *Updater {
	p.t.Helper()
	keys, err := Keys(s.pinned())
	p.must(err)
	addr := s.Listener.Addr().String()
	u, err := New(Config{
		Tree:      p.tree,
		Managed:   true,
		State:     filepath.Join(p.dir, "state"),
		Version:   v,
		Keys:      keys,
		Next:      http.DefaultTransport,
		Allow:     []string{addr},
		Examine:   p.examine,
		Probation: probation,
		Log:       slog.New(slog.NewTextHandler(p.t.Output(), nil)),
		retry:     50 * time.Millisecond,
	})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { u.Run(ctx); close(done) }()
	p.t.Cleanup(func() { cancel(); <-done })
	return u
}

func (p *place) examine(ctx context.Context, program string) ([]string, error) {
	var out []byte
	err := whileBusy(func() (err error) {
		out, err = exec.CommandContext(ctx, program, "doctor").Output()
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []struct{ Check, State string }
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, err
	}
	bad := []string{}
	for _, f := range all {
		if f.State == "bad" {
			bad = append(bad, f.Check)
		}
	}
	return bad, nil
}

// agentText returns the scripts of an agent of a version, whose doctor prints the given text.
func agentText(version, doctor string) map[string]string {
	return map[string]string{
		guestFile: "guest",
		agentFile: fmt.Sprintf("#!/bin/sh\ncase $1 in\nversion) echo 'muster-agent %s (protocol 1)' ;;\ndoctor) echo '%s' "+
			";;\nesac\n", version, doctor),
	}
}

const content = `[{"check":"rights","state":"ok"}]`

func TestAnOrderIsFetchedVerifiedAndHandedOver(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, map[string]string{"v1.0.0": lives}), newShop(t)
	s.release("v1.1.0", agentText("v1.1.0", content))
	u := p.updater("v1.0.0", s, time.Minute)
	well := agentapi.LeaseRef{Lease: "ls_1", Epoch: 2}
	u.Reported(Report{
		Committed: true,
		Full:      true,
		Order:     &agentapi.UpdateOrder{Version: "v1.1.0", Source: s.URL + "/", Try: 3},
		Leases: []agentapi.LeaseStatus{
			{
				LeaseRef: well,
				State:    agentapi.NodeReady,
				Started:  true,
				Good:     true,
			}, {LeaseRef: agentapi.LeaseRef{Lease: "ls_2", Epoch: 1}, State: agentapi.NodePulling}},
	})
	<-u.Over()
	m := p.memory()
	if m.Trial == nil || m.Trial.Version != "v1.1.0" || m.Trial.Try != 3 || m.Trial.From != "v1.0.0" ||
		len(m.Trial.Good) != 1 || m.Trial.Good[0] != well {
		t.Fatalf("%+v", m.Trial)
	}
	if current, _ := p.tree.Current(); current != "v1.0.0" {
		t.Errorf("current is %s before it has proven itself", current)
	}
}

// What is not signed, is not what was signed, or is older never runs.
func TestWhatIsNotARelease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		alter func(*shop)
		order string
		state agentapi.UpdateState
		why   string
	}{
		"another key": {func(s *shop) {
			s.key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32))
			s.release("v1.1.0", agentText("v1.1.0", content))
		}, "v1.1.0", agentapi.UpdateWaiting, "not signed by a key"},
		"an altered list": {func(s *shop) { s.put("SHA256SUMS", append(s.files["SHA256SUMS"], '\n')) }, "v1.1.0",
			agentapi.UpdateWaiting, "not signed by a key"},
		"another archive": {func(s *shop) {
			s.put("muster-agent-v1.1.0-linux-"+runtime.GOARCH+".tar.gz",
				[]byte("evil"))
		}, "v1.1.0", agentapi.UpdateWaiting, "another hash"},
		"a version not listed": {func(s *shop) {}, "v1.2.0", agentapi.UpdateWaiting, "the signed list has no"},
		"older": {func(s *shop) { s.release("v0.9.0", agentText("v0.9.0", content)) }, "v0.9.0",
			agentapi.UpdateRefused, "not newer"},
		"a path for a name": {func(s *shop) {}, "../../v9.9.9", agentapi.UpdateRefused, "no release's number"},
		"another version inside": {func(s *shop) { s.release("v1.1.0", agentText("v0.1.0", content)) }, "v1.1.0",
			agentapi.UpdateRefused, "says it is another version"},
		"it does not start": {func(s *shop) {
			s.release("v1.1.0", map[string]string{agentFile: "\x7fELF nonsense", guestFile: ""})
		}, "v1.1.0", agentapi.UpdateRefused, "does not start on this machine"},
		"its doctor finds more": {func(s *shop) {
			s.release("v1.1.0",
				agentText("v1.1.0", `[{"check":"firewall","state":"bad"}]`))
		}, "v1.1.0", agentapi.UpdateRefused, "firewall"},
		"no guest": {func(s *shop) { s.release("v1.1.0", map[string]string{agentFile: "x"}) }, "v1.1.0",
			agentapi.UpdateWaiting, "does not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := newPlace(t, map[string]string{"v1.0.0": lives}), newShop(t)
			s.release("v1.1.0", agentText("v1.1.0", content))
			u := p.updater("v1.0.0", s, time.Minute)
			tc.alter(s)
			if name == "another key" {
				s.key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
			}
			u.Reported(Report{Order: &agentapi.UpdateOrder{Version: tc.order, Source: s.URL, Try: 1}})
			eventually(t, "a verdict", func() bool { return u.Status().State == tc.state })
			if st := u.Status(); !strings.Contains(st.Detail, tc.why) {
				t.Errorf("%+v, want %q", st, tc.why)
			}
			if m := p.memory(); m.Trial != nil {
				t.Errorf("on trial: %+v", m.Trial)
			}
			entries, _ := os.ReadDir(p.tree.versions())
			if len(entries) != 1 && tc.state == agentapi.UpdateRefused {
				t.Errorf("left: %v", entries)
			}
		})
	}
}

// An order that was given up is not begun again, but by another try; a source that comes back is.
func TestAnOrderIsTriedAgain(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t, map[string]string{"v1.0.0": lives}), newShop(t)
	p.must(p.s.save(memory{Last: agentapi.UpdateStatus{
		State:   agentapi.UpdateRolledBack,
		Version: "v1.1.0",
		Try:     1,
		Detail:  "it ended",
	}}))
	u := p.updater("v1.0.0", s, time.Minute)
	u.Reported(Report{Order: &agentapi.UpdateOrder{Version: "v1.1.0", Source: s.URL, Try: 1}})
	u.Reported(Report{Order: &agentapi.UpdateOrder{Version: "v1.1.0", Source: s.URL, Try: 2}}) // the shop is empty
	eventually(t, "it waits", func() bool { return u.Status().State == agentapi.UpdateWaiting && u.Status().Try == 2 })
	s.release("v1.1.0", agentText("v1.1.0", content))
	<-u.Over()
	if m := p.memory(); m.Trial == nil || m.Trial.Try != 2 {
		t.Errorf("%+v", m)
	}
}

func TestProof(t *testing.T) {
	t.Parallel()
	ref := agentapi.LeaseRef{Lease: "ls_1", Epoch: 1}
	p, s := newPlace(t, map[string]string{"v1.0.0": lives, "v1.1.0": lives}), newShop(t)
	p.must(p.s.save(memory{Trial: &trial{Version: "v1.1.0", Try: 1, From: "v1.0.0", Good: []agentapi.LeaseRef{ref}}}))
	u := p.updater("v1.1.0", s, 50*time.Millisecond)
	lease := func(good bool) []agentapi.LeaseStatus {
		return []agentapi.LeaseStatus{{
			LeaseRef: ref,
			State:    agentapi.NodeReady,
			Started:  true,
			Good:     good,
			Trouble:  "overlay_failed",
		}}
	}
	for _, tc := range []struct {
		r   Report
		why string
		bad string
	}{
		{r: Report{Full: true, Leases: lease(true)}, why: "no report of it was taken"},
		{r: Report{Committed: true, Leases: lease(true)}, why: "has not seen yet"},
		{
			r:   Report{Committed: true, Full: true, Leases: lease(false)},
			why: "ls_1/e1, which was well, is not: overlay_failed",
		},
		{
			r: Report{
				Committed: true,
				Full:      true,
				Leases: []agentapi.LeaseStatus{{
					LeaseRef: ref,
					State:    agentapi.NodeFailed,
					Reason:   agentapi.ReasonHostInterrupted,
				}},
			},
			why: "has failed: host_interrupted",
		},
		{
			r:   Report{Committed: true, Full: true, Leases: lease(true)},
			bad: `[{"check":"docker","state":"bad"}]`,
			why: "the doctor finds bad what was not before: docker",
		},
	} {
		if tc.bad != "" {
			p.must(os.WriteFile(filepath.Join(p.dir, "doctor"), []byte(tc.bad), 0o600))
		}
		u.Reported(tc.r)
		eventually(t, tc.why, func() bool { return strings.Contains(u.Status().Detail, tc.why) })
		if ok, err := p.s.proven(u.trial); ok || err != nil {
			t.Errorf("proven in spite of: %s (%v)", tc.why, err)
		}
	}
	p.must(os.Remove(filepath.Join(p.dir, "doctor")))
	u.Reported(Report{Committed: true, Full: true, Leases: lease(true)})
	eventually(t, "proven", func() bool { ok, _ := p.s.proven(u.trial); return ok })
}

func TestWhichVersionIsNewer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		version, running string
		ok               bool
	}{
		{"v1.2.3", "v1.2.2", true}, {"1.10.0", "v1.9.9", true}, {"v1.2.3-4-gabc123", "v1.2.3", true}, {"v1.2.3", "dev", true},
		{"v1.2.3", "55619e3", true},
		{"v1.2.3", "v1.2.3", false}, {"v1.2.3", "v1.2.3-1-gabc", false}, {"v1.2.2", "v1.2.3", false}, {"dev", "dev", false},
		{"v1.2", "v1.1.0", false}, {"v1.2.3/../x", "v1.0.0", false},
	} {
		if why := newer(tc.version, tc.running); (why == "") != tc.ok {
			t.Errorf("%s in place of %s: %q", tc.version, tc.running, why)
		}
	}
}
