package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/musterhq/muster/internal/agentapi"
)

type env struct {
	t      *testing.T
	daemon *daemon
	puller *Puller
	now    time.Time
	free   int64
}

func setUp(t *testing.T, allow ...string) *env {
	t.Helper()
	e := &env{t: t, daemon: newDaemon(), now: time.Unix(1e9, 0), free: 1 << 40}
	var err error
	e.puller, err = New(Config{
		Daemon: e.daemon,
		Dir:    t.TempDir(),
		Prefix: "muster-test",
		Allow:  allow,
		Log:    slog.New(slog.DiscardHandler),
		Now:    func() time.Time { return e.now },
		Free:   func() (int64, error) { return e.free, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.puller.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return e
}

// pull fails the test unless the pull ends for reason ("" = well).
func (e *env) pull(r Request, reason string) (Image, []agentapi.Progress) {
	e.t.Helper()
	if r.MaxBytes == 0 {
		r.MaxBytes = 1 << 30
	}
	var seen []agentapi.Progress
	img, err := e.puller.Pull(e.t.Context(), r, func(p agentapi.Progress) { seen = append(seen, p) })
	var final *Error
	switch {
	case reason == "" && err != nil:
		e.t.Fatalf("pull %s: %v", r.Image, err)
	case reason != "" && (!errors.As(err, &final) || final.Reason != reason):
		e.t.Fatalf("pull %s: %v, want %s", r.Image, err, reason)
	}
	return img, seen
}

// serve starts a registry and returns its host:port.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func layer(t *testing.T, files map[string][]byte) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := errors.Join(w.WriteHeader(&tar.Header{
			Name: name,
			Mode: 0o755,
			Size: int64(len(content)),
		}), second(w.Write(content))); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())),
			nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func second[T any](_ T, err error) error { return err }

func build(t *testing.T, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: arch,
		Config:       v1.Config{Cmd: []string{"/x"}},
	})
	if err == nil {
		img, err = mutate.AppendLayers(img, layers...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func withEnv(t *testing.T, img v1.Image, env ...string) v1.Image {
	t.Helper()
	cfg, err := img.ConfigFile()
	if err == nil {
		cfg = cfg.DeepCopy()
		cfg.Config.Env = env
		img, err = mutate.ConfigFile(img, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func push(t *testing.T, ref string, img v1.Image) {
	t.Helper()
	r, err := name.ParseReference(ref, name.Insecure)
	if err == nil {
		err = remote.Write(r, img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPullDedupesAndReports(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	one, two := layer(t, map[string][]byte{"a": bytes.Repeat([]byte("x"), 9000)}),
		layer(t, map[string][]byte{"b": []byte("y")})
	push(t, reg+"/team/app:1", build(t, runtime.GOARCH, one, two))
	push(t, reg+"/other:2", build(t, runtime.GOARCH, one))

	img, seen := e.pull(Request{Image: reg + "/team/app:1"}, "")
	last := seen[len(seen)-1]
	if img.ID == "" || !strings.HasPrefix(img.Digest, "sha256:") || last.Done != last.Total || last.Total == 0 ||
		len(last.Layers) != 2 {
		t.Fatalf("image %+v, progress %+v", img, last)
	}
	if again, seen := e.pull(Request{
		Image:  reg + "/team/app",
		Digest: img.Pin,
	}, ""); again != img || !seen[len(seen)-1].Layers[0].Cached {
		t.Errorf("the second lease got %+v with %+v", again, seen)
	}
	if n := e.daemon.pulls.Load(); n != 1 {
		t.Errorf("%d pulls of one image", n)
	}
	if _, seen = e.pull(Request{Image: reg + "/other:2"}, ""); !seen[len(seen)-1].Layers[0].Cached {
		t.Errorf("a layer that the daemon has is not shown as cached: %+v", seen[len(seen)-1])
	}
	for tag := range e.daemon.tags {
		if !strings.HasPrefix(tag, "muster-test/image:") {
			t.Errorf("left behind: %s", tag)
		}
	}
}

func TestLeasesShareOneDownload(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	e.daemon.gate = make(chan struct{})
	push(t, reg+"/app:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": []byte("1")})))
	var wg sync.WaitGroup
	joined := make(chan struct{}, 3)
	for range 3 {
		wg.Go(func() {
			var once sync.Once
			if _, err := e.puller.Pull(t.Context(), Request{
				Image:    reg + "/app:1",
				MaxBytes: 1 << 20,
			}, func(p agentapi.Progress) {
				if p.Step == "layers" {
					once.Do(func() { joined <- struct{}{} })
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		<-joined
	}
	close(e.daemon.gate)
	wg.Wait()
	if n := e.daemon.pulls.Load(); n != 1 {
		t.Errorf("%d downloads for three leases", n)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	otherArch := "arm64"
	if runtime.GOARCH == otherArch {
		otherArch = "amd64"
	}
	bomb := layer(t, map[string][]byte{"zeros": make([]byte, 8<<20)})
	push(t, reg+"/arch:1", build(t, otherArch, layer(t, map[string][]byte{"a": nil})))
	push(t, reg+"/bomb:1", build(t, runtime.GOARCH, bomb))
	push(t, reg+"/ok:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": nil})))
	for _, n := range []int{125, 126} { // Docker: "max depth exceeded", after it has pulled 125
		layers := slices.Repeat([]v1.Layer{layer(t, map[string][]byte{"a": nil})}, n)
		push(t, fmt.Sprintf("%s/layers:%d", reg, n), build(t, runtime.GOARCH, layers...))
	}
	for _, c := range []struct {
		name   string
		r      Request
		free   int64
		reason string
	}{
		{"wrong processor", Request{Image: reg + "/arch:1"}, 1 << 40, agentapi.ReasonImageWrongArch},
		{"unpacks to too much", Request{Image: reg + "/bomb:1", MaxBytes: 1 << 20}, 1 << 40, agentapi.ReasonImageTooBig},
		{"is too big packed", Request{Image: reg + "/bomb:1", MaxBytes: 100}, 1 << 40, agentapi.ReasonImageTooBig},
		{"is more than the line has", Request{Image: reg + "/ok:1", MaxFetch: 1}, 1 << 40, agentapi.ReasonImageTooBig},
		{"no such tag", Request{Image: reg + "/ok:2"}, 1 << 40, agentapi.ReasonImageNotFound},
		{"no such name", Request{Image: reg + "/nothing"}, 1 << 40, agentapi.ReasonImageNotFound},
		{"no such digest", Request{
			Image:  reg + "/ok",
			Digest: "sha256:" + strings.Repeat("0", 64),
		}, 1 << 40, agentapi.ReasonImageNotFound},
		{"not a name", Request{Image: "Not A Name"}, 1 << 40, agentapi.ReasonImageRefused},
		{"not a digest", Request{Image: reg + "/ok", Digest: "sha256:0"}, 1 << 40, agentapi.ReasonImageRefused},
		{"no disk", Request{Image: reg + "/ok:1"}, 10, agentapi.ReasonNoDisk},
		{"as many layers as Docker stacks", Request{Image: reg + "/layers:125"}, 1 << 40, ""},
		{"more layers", Request{Image: reg + "/layers:126"}, 1 << 40, agentapi.ReasonImageRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.t, e.free = t, c.free
			e.pull(c.r, c.reason)
		})
	}
	if packed, err := bomb.Compressed(); err == nil {
		b, _ := io.ReadAll(packed)
		if e.daemon.holds(b) {
			t.Error("the daemon holds the layer that is too big: it would have unpacked it")
		}
	}
}

func TestCredentialsOpenOnlyWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	reg := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, pass, _ := r.BasicAuth(); r.Method == http.MethodGet && (user != "u" || pass != "p") {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	e := setUp(t, reg)
	img := build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": []byte("secret")}))
	r, err := name.ParseReference(reg+"/private:1", name.Insecure)
	if err == nil {
		err = remote.Write(r, img, remote.WithAuth(basic{}))
	}
	if err != nil {
		t.Fatal(err)
	}
	e.pull(Request{Image: reg + "/private:1"}, agentapi.ReasonImageUnauthorized)
	got, _ := e.pull(Request{Image: reg + "/private:1", Auth: &agentapi.RegistryAuth{Username: "u", Password: "p"}}, "")
	if cached := e.puller.Cached(); len(cached) != 0 {
		t.Errorf("an image that needs credentials is listed: %+v", cached)
	}
	// The image lies here now: knowing its digest is still not enough.
	e.pull(Request{Image: reg + "/private", Digest: got.Digest}, agentapi.ReasonImageUnauthorized)
}

func TestALayerWithAnotherDigestIsRefused(t *testing.T) {
	t.Parallel()
	good := layer(t, map[string][]byte{"a": []byte("good")})
	digest, err := good.Digest()
	if err != nil {
		t.Fatal(err)
	}
	reg := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, digest.String()) {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				b := rec.Body.Bytes()
				b[len(b)-1] ^= 1
				w.Write(b)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	push(t, reg+"/app:1", build(t, runtime.GOARCH, good))
	setUp(t, reg).pull(Request{Image: reg + "/app:1"}, agentapi.ReasonImageRefused)
}

func TestOnlyRunningPullsCanBeRead(t *testing.T) {
	t.Parallel()
	e := setUp(t)
	for _, path := range []string{"/v2/x/image/manifests/sha256:0", "/v2/x/image/blobs/sha256:0", "/v2/_catalog", "/"} {
		res, err := http.Get("http://" + e.puller.proxy.listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

func TestGCKeepsWhatIsWanted(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	digests := map[string]string{}
	for _, n := range []string{"old", "used", "new"} {
		push(t, reg+"/"+n+":1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": []byte(n)})))
		img, _ := e.pull(Request{Image: reg + "/" + n + ":1"}, "")
		digests[n] = img.Digest
		e.now = e.now.Add(time.Hour)
	}
	e.daemon.tags["another/image:1"] = "sha256:1"
	gc := func(want int) {
		t.Helper()
		if n, err := e.puller.GC(t.Context(), []string{digests["used"]}, 2*time.Hour, 1000); err != nil || n != want {
			t.Fatalf("removed %d, %v; want %d", n, err, want)
		}
	}
	gc(1) // "old" is three hours old
	e.free = 10
	gc(1) // the disk is full: "new" too, "used" never
	gc(0)
	if len(e.daemon.tags) != 2 {
		t.Errorf("left: %v", e.daemon.tags)
	}
}

// basic signs in as u with p.
type basic struct{}

func (basic) Authorization() (*authn.AuthConfig, error) {
	return &authn.AuthConfig{Username: "u", Password: "p"}, nil
}
