package image

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Volumes that an image declares are not bounded by the node's disk: the daemon gets the image without them. It is
// known by its own digest all the same, and pulled once; one that an older agent has kept with its volumes is replaced.
func TestTheDaemonGetsNoVolumes(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	img, err := mutate.Config(build(t, runtime.GOARCH, layer(t, map[string][]byte{"data/a": []byte("x")})),
		v1.Config{Cmd: []string{"/x"}, Env: []string{"A=1"}, Volumes: map[string]struct{}{"/data": {}, "/var/lib/db": {}}})
	if err != nil {
		t.Fatal(err)
	}
	push(t, reg+"/volumes:1", img)
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := e.pull(Request{Image: reg + "/volumes:1"}, "")
	if got.Digest != want.String() || got.Pin != want.String() {
		t.Errorf("the image has become another: %+v, not %s", got, want)
	}
	config := func(id string) v1.ConfigFile {
		t.Helper()
		e.daemon.mu.Lock()
		defer e.daemon.mu.Unlock()
		var c v1.ConfigFile
		if err := json.Unmarshal(e.daemon.blobs[id], &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := config(got.ID); len(c.Config.Volumes) != 0 || len(c.Config.Cmd) != 1 || len(c.Config.Env) != 1 ||
		len(c.RootFS.DiffIDs) != 1 || c.Architecture != runtime.GOARCH {
		t.Errorf("%+v", c)
	}
	again, _ := e.pull(Request{Image: reg + "/volumes:1"}, "")
	if again.ID != got.ID || e.daemon.pulls.Load() != 1 {
		t.Errorf("pulled %d times, as %s and %s", e.daemon.pulls.Load(), got.ID, again.ID)
	}
	e.daemon.mu.Lock()
	e.daemon.tags[e.puller.tag(want.String())] = "sha256:" + strings.Repeat("0", 64)
	e.daemon.mu.Unlock()
	if after, _ := e.pull(Request{Image: reg + "/volumes:1"}, ""); after.ID != got.ID || e.daemon.pulls.Load() != 2 {
		t.Errorf("the image of an older agent is used: %+v", after)
	}
}

// However a configuration spells its volumes, the daemon would read them, and does not.
func TestVolumesInDisguise(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"config":{"Volumes":{"/a":{}},"Cmd":["x"]}}`,
		`{"Config":{"volumes":{"/a":{}},"Cmd":["x"]}}`,
		`{"CONFIG":{"VOLUMES":{"/a":{}}},"config":{"Volume\u017f":{"/b":{}},"Cmd":["x"]}}`,
		`{"config":{"Volumes":{"/a":{}}},"config":{"Cmd":["x"],"Volumes":{"/b":{}},"volumes":{"/c":{}}}}`,
	} {
		out, err := dropVolumes([]byte(text))
		var c v1.ConfigFile
		if err == nil {
			err = json.Unmarshal(out, &c)
		}
		if err != nil || len(c.Config.Volumes) != 0 || len(c.Config.Cmd) != 1 {
			t.Errorf("%s: %s, %v", text, out, err)
		}
	}
	if _, err := dropVolumes([]byte(`{"config":[]}`)); err == nil {
		t.Error("a malformed configuration is passed on")
	}
}
