package redteam

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// The registries, in the internet of the test's own: one that keeps to the rules, and a hostile one.
const (
	honest  = "203.0.113.80:5000"
	hostile = "203.0.113.80:5001"
)

// registries starts an honest and a hostile registry and returns the handler that stores their images. attacks has
// handlers by repository of the hostile one, which serves all other repositories like the honest one.
func (b *box) registries(attacks *sync.Map) http.Handler {
	keeper := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	serve := func(addr string, h http.Handler) {
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		l := b.far.Listen(addr)
		go s.Serve(l)
		b.t.Cleanup(func() { s.Close() })
	}
	serve(honest, keeper)
	serve(hostile, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repo, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		if attack, ok := attacks.Load(repo); ok {
			attack.(http.HandlerFunc)(w, r)
			return
		}
		keeper.ServeHTTP(w, r)
	}))
	return keeper
}

// keep puts an image into the registries, without a connection.
func keep(t *testing.T, registry http.Handler, repo string, layer v1.Layer) {
	t.Helper()
	keepAs(t, registry, repo, layer, v1.Config{Cmd: []string{"/x"}})
}

func keepAs(t *testing.T, registry http.Handler, repo string, layer v1.Layer, config v1.Config) {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: config})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(honest+"/"+repo+":1", name.Insecure)
	if err == nil {
		err = remote.Write(ref, img, remote.WithTransport(direct{registry}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// direct hands requests to a handler.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, r)
	res := rec.Result()
	res.Request = r
	return res, nil
}

// zeros is a layer of one file of zeros, n bytes rounded up to 16 MiB, and as small as gzip makes it: a thousandth.
// DiffID is wrong, which the engine finds out once it has unpacked it.
func zeros(t *testing.T, n int64) v1.Layer {
	t.Helper()
	const member = 16 << 20
	times := (n + member - 1) / member
	pack := func(b []byte) []byte {
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if err == nil {
			_, err = z.Write(b)
		}
		if err == nil {
			err = z.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: times * member}); err != nil {
		t.Fatal(err)
	}
	body := append(pack(head.Bytes()), bytes.Repeat(pack(make([]byte, member)), int(times))...)
	// gzip's members follow each other
	return static.NewLayer(append(body, pack(make([]byte, 1024))...), types.DockerLayer)
}

// good is a layer of one small file, as an engine takes it.
func good(t *testing.T, content string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "good", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	if err == nil {
		err = w.Close()
	}
	var l v1.Layer
	if err == nil {
		l, err = tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b.Bytes())),
				nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The agent's own puller pulls from hostile registries for the engine of a box. None leads it to places that only the
// host can reach, at whichever step and to whichever place, and none fills its disk.
func TestHostileRegistriesAreHeld(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	attacks := &sync.Map{} // by repository: http.HandlerFunc
	keeper := b.registries(attacks)
	t.Run("leading inside", func(t *testing.T) { b.leadInside(t, keeper, attacks) })
	t.Run("unpack bomb", func(t *testing.T) { b.unpackBomb(t, keeper) })
	t.Run("layers in disguise", func(t *testing.T) { b.disguises(t, keeper) })
}

func (b *box) leadInside(t *testing.T, keeper http.Handler, attacks *sync.Map) {
	places := append([]string{"127.0.0.1:2222", "[::1]:2222", boxLAN + ":2222", "172.31.0.1:2222", neighbour}, metadata...)
	// They are there, and counted: from the host itself each answers.
	for _, p := range places {
		before := b.connections.Load()
		b.there(t, p)
		for deadline := time.Now().Add(2 * time.Minute); b.connections.Load() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s was asked and does not count", p)
			}
		}
	}
	before := b.connections.Load()

	layer := good(t, "of the attacks")
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	var images []string
	var lied sync.Map // the repositories that have lied
	// add makes a repository that lies about what has part in its path.
	add := func(repo, part string, lie http.HandlerFunc) {
		keep(t, keeper, repo, layer)
		attacks.Store(repo, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, part) {
				keeper.ServeHTTP(w, r)
				return
			}
			lied.Store(repo, true)
			lie(w, r)
		}))
		images = append(images, hostile+"/"+repo+":1")
	}
	for i, p := range places {
		for _, scheme := range []string{"http", "https"} {
			to := scheme + "://" + p
			redirect := func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
			}
			add(fmt.Sprintf("manifest-%s-%d", scheme, i), "/manifests/", redirect)
			add(fmt.Sprintf("config-%s-%d", scheme, i), "/blobs/", redirect)
			add(fmt.Sprintf("layer-%s-%d", scheme, i), "/blobs/"+digest.String(), redirect)
			// The registry demands a token, not one of its repositories.
			images = append(images, b.realms(scheme, i, to, &lied)+"/realm:1")
		}
	}
	lies := len(images)
	for _, p := range places {
		images = append(images, p+"/by-name:1")
	}
	for _, o := range b.pull(t, images...) {
		if o.ID != "" || o.Reason != agentapi.ReasonImageRefused {
			t.Errorf("BREACH %+v", o)
		}
		if _, did := lied.Load(strings.TrimSuffix(strings.TrimPrefix(o.Image, hostile+"/"), ":1")); !did &&
			!strings.HasSuffix(o.Image, "/by-name:1") {
			t.Errorf("%s: the attack was not made", o.Image)
		}
	}
	if n := b.connections.Load() - before; n != 0 {
		t.Errorf("BREACH %d connections reached a place that only the host can reach", n)
	}
	t.Logf("%d images refused, %d of them by registries that lie", len(images), lies)

	// Such redirects do lead somewhere: to an address that is allowed, the puller and the engine follow.
	elsewhere := good(t, "of the honest registry")
	keep(t, keeper, "elsewhere", elsewhere)
	keep(t, keeper, "good", elsewhere)
	var followed atomic.Bool
	attacks.Store("elsewhere", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			keeper.ServeHTTP(w, r)
			return
		}
		followed.Store(true)
		http.Redirect(w, r, "http://"+honest+strings.Replace(r.URL.Path, "elsewhere", "good", 1),
			http.StatusTemporaryRedirect)
	}))
	if o := b.pull(t, hostile+"/elsewhere:1")[0]; o.ID == "" || !followed.Load() {
		t.Errorf("%+v", o)
	}
}

// realms starts a registry that sends clients to a place for its tokens, and returns its address.
func (b *box) realms(scheme string, i int, to string, lied *sync.Map) string {
	addr := realm(scheme, i)
	s := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			lied.Store(addr+"/realm", true)
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, to))
			w.WriteHeader(http.StatusUnauthorized)
		}),
	}
	l := b.far.Listen(addr)
	go s.Serve(l)
	b.t.Cleanup(func() { s.Close() })
	return addr
}

func (b *box) unpackBomb(t *testing.T, keeper http.Handler) {
	const size = 20 * nodeDisk
	bomb := zeros(t, size)
	packed, err := bomb.Size()
	if err != nil || packed > size/1000 {
		t.Fatalf("%d bytes, %v: the bomb is to be small", packed, err)
	}
	keep(t, keeper, "bomb", bomb)
	keep(t, keeper, "good", good(t, "before the bomb"))
	if o := b.pull(t, honest+"/good:1")[0]; o.ID == "" {
		t.Fatalf("%+v", o) // what the engine makes once is made
	}
	before := b.stored(t)
	images := b.images()
	done := make(chan struct{})
	peak := make(chan int64)
	go func() {
		most := int64(0)
		for {
			most = max(most, b.stored(t))
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	o := b.pull(t, honest+"/bomb:1")[0]
	close(done)
	most := <-peak
	if o.ID != "" || o.Reason != agentapi.ReasonImageTooBig {
		t.Errorf("BREACH %+v", o)
	}
	if now := b.images(); !slices.Equal(now, images) {
		t.Errorf("the engine has other images than before: %q, before %q", now, images)
	}
	if most > before+packed+nodeDisk/8 { // its own books grow, too
		t.Errorf("BREACH the engine's disk rose from %d to %d bytes for a bomb of %d", before, most, packed)
	}
	// The engine lets go of the packed bytes that it had got, in its own time.
	now := b.stored(t)
	for deadline := time.Now().Add(2 * time.Minute); now > before+packed/2 &&
		time.Now().Before(deadline); now = b.stored(t) {
		time.Sleep(50 * time.Millisecond)
	}
	if now > before+packed/2 {
		t.Errorf("the engine's disk had %d bytes and keeps %d", before, now)
	}
	t.Logf("a bomb of %d bytes: the engine's disk had %d bytes, at most %d, now %d", packed, before, most, now)
}

// disguises are layers that the engine would unpack to more than their bytes say, and an image whose volumes would be
// outside of every bound.
func (b *box) disguises(t *testing.T, keeper http.Handler) {
	bombs := map[string]struct {
		layer  []byte
		reason string
	}{
		"sparse": {sparse(1 << 40), agentapi.ReasonImageTooBig},
		"bzip2":  {bzip2(t, 20*nodeDisk), agentapi.ReasonImageRefused},
		"text":   {bytes.Repeat([]byte("no archive "), 100), agentapi.ReasonImageRefused},
	}
	images := b.images()
	for name, bomb := range bombs {
		keep(t, keeper, name, static.NewLayer(bomb.layer, types.DockerLayer))
		before := b.stored(t)
		if o := b.pull(t, honest+"/"+name+":1")[0]; o.ID != "" || o.Reason != bomb.reason {
			t.Errorf("BREACH %+v", o)
		}
		if now := b.stored(t); now > before+nodeDisk/8 {
			t.Errorf("BREACH %s: %d bytes took %d on the engine's disk", name, len(bomb.layer), now-before)
		}
	}
	if now := b.images(); !slices.Equal(now, images) {
		t.Errorf("the engine has other images than before: %q, before %q", now, images)
	}
	keepAs(t, keeper, "volumes", good(t, "of an image with volumes"), v1.Config{
		Cmd:     []string{"/x"},
		Env:     []string{"A=1"},
		Volumes: map[string]struct{}{"/data": {}},
	})
	o := b.pull(t, honest+"/volumes:1")[0]
	if o.ID == "" {
		t.Fatalf("%+v", o)
	}
	if got := b.docker.Do("image", "inspect", "--format", "{{len .Config.Volumes}} {{.Config.Env}} {{.Config.Cmd}}",
		o.ID); got != "0 [A=1] [/x]" {
		t.Errorf("BREACH the engine was given %s", got)
	}
}

// sparse is an archive of one file of size bytes, all of it a hole.
func sparse(size int64) []byte {
	b := make([]byte, 512+1024)
	put := func(at, n int, v int64) { copy(b[at:], fmt.Sprintf("%0*o\x00", n-1, v)) }
	copy(b, "holes")
	put(100, 8, 0o644)
	put(124, 12, 0)
	put(136, 12, 0)
	b[156] = 'S' // GNU's
	copy(b[257:], "ustar  \x00")
	put(483, 12, size)
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// bzip2 is an archive of n zeros, packed: a forty-thousandth.
func bzip2(t *testing.T, n int64) []byte {
	t.Helper()
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: n}); err != nil {
		t.Fatal(err)
	}
	pack := func(b []byte) []byte {
		cmd := exec.Command("bzip2", "-9")
		cmd.Stdin = bytes.NewReader(b)
		out, err := cmd.Output()
		if errors.Is(err, exec.ErrNotFound) {
			return append([]byte("BZh9"), b[:min(len(b), 512)]...) // refused by how it begins
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// Packed files one after the other are a packed file: to pack all zeros at once would take a minute.
	zeros := make([]byte, 16<<20)
	return slices.Concat(pack(head.Bytes()), bytes.Repeat(pack(zeros), int(n/int64(len(zeros)))+1))
}

// images are the engine's, in an order that is always the same.
func (b *box) images() []string {
	return slices.Sorted(strings.FieldsSeq(b.docker.Do("images", "--all", "--quiet", "--no-trunc")))
}

// stored is how many bytes the engine's folder takes on the disk, but for its logs.
func (b *box) stored(t *testing.T) int64 {
	sum, err := testnet.Stored(filepath.Join(b.host.Dir(), "docker"))
	if err != nil {
		t.Error(err)
	}
	return sum
}
