package image

import (
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/google/go-containerregistry/pkg/name"
)

// A name that means a list for several machines is pinned to the list, so that hosts of each kind run the same image;
// a name that is moved does not move what was pinned.
func TestAPinIsWhatTheNameMeant(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	mine := build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": []byte("mine")}))
	list := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        mine,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}},
	},
		mutate.IndexAddendum{
			Add:        build(t, "riscv64", layer(t, map[string][]byte{"a": []byte("other")})),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "riscv64"}},
		})
	ref, err := name.ParseReference(reg + "/app:1")
	if err == nil {
		err = remote.WriteIndex(ref, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := list.Digest()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := e.pull(Request{Image: reg + "/app:1"}, "")
	if got.Pin != want.String() || got.Digest == got.Pin {
		t.Errorf("%+v, want pinned to %s", got, want)
	}
	if cached := e.puller.Cached(); len(cached) != 1 || cached[0].Ref != reg+"/app:1" || cached[0].Digest != got.Pin {
		t.Errorf("cached: %+v", cached)
	}
	push(t, reg+"/app:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": []byte("newer")})))
	if again, _ := e.pull(Request{Image: reg + "/app:1", Digest: got.Pin}, ""); again != got {
		t.Errorf("%+v, want %+v", again, got)
	}
	newer, _ := e.pull(Request{Image: reg + "/app:1"}, "")
	if cached := e.puller.Cached(); newer.Pin == got.Pin || len(cached) != 1 || cached[0].Digest != newer.Pin {
		t.Errorf("pulled %+v, cached: %+v", newer, cached)
	}
}
