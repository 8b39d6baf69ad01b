package cluster

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// A word before the name says what a mount is of, unless a path follows: then it is the name of a volume.
func TestKindOfMount(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string][2]string{
		"training-data:/data":        {"volume", "training-data:/data"},
		"volume:training-data:/data": {"volume", "training-data:/data"},
		"volume:/data":               {"volume", "volume:/data"},
		"bucket:results:/results":    {"bucket", "results:/results"},
		"bucket:/data":               {"volume", "bucket:/data"},
		"bkt_x:/results:ro":          {"bucket", "bkt_x:/results:ro"},
		"shared:lab-nfs:/shared":     {"shared", "lab-nfs:/shared"},
		"shared:/shared":             {"volume", "shared:/shared"},
	} {
		if kind, rest := kindOf(arg); [2]string{kind, rest} != want {
			t.Errorf("%s: %s %s, want %s", arg, kind, rest, want)
		}
	}
}

func TestReadMount(t *testing.T) {
	t.Parallel()
	f := &specFlags{}
	vol, bkt := id.New[id.Volume](), id.New[id.Bucket]()
	m, err := f.readMount(nil, vol.String()+":/data:ranks:every=10m")
	if err != nil || m.Volume != vol || m.Path != "/data" || m.Mode != "ranks" || m.Snapshot.EveryS != 600 ||
		!m.Snapshot.OnEnd {
		t.Errorf("%+v %v", m, err)
	}
	m, err = f.readMount(nil, "volume:"+vol.String()+":/data:ro:lazy:cache=1TB")
	if err != nil || m.Volume != vol || m.Mode != "ro" || !m.Lazy || m.CacheGB != 1000 || m.Snapshot.OnEnd {
		t.Errorf("%+v %v", m, err)
	}
	m, err = f.readMount(nil, bkt.String()+":/results:ro:cache=20")
	if err != nil || m.Bucket != bkt || m.Path != "/results" || m.Mode != "ro" || m.CacheGB != 20 {
		t.Errorf("%+v %v", m, err)
	}
	m, err = f.readMount(nil, "shared:lab-nfs:/shared:ro")
	if err != nil || m.Shared != "lab-nfs" || m.Path != "/shared" || m.Mode != "ro" {
		t.Errorf("%+v %v", m, err)
	}
	for arg, want := range map[string]string{
		vol.String():                           "want VOLUME:PATH",
		vol.String() + ":/data:rx":             "not rx",
		vol.String() + ":/data:every=often":    "every=: want whole seconds",
		vol.String() + ":/data:ro:lazy:cache=": "cache=: want whole gigabytes",
		bkt.String() + ":/results:ranks":       "not ranks",
		"bucket:results":                       "want bucket:NAME:PATH",
		"shared:lab-nfs:/shared:ranks":         "want shared:NAME:PATH",
	} {
		if _, err := f.readMount(nil, arg); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(fault.From(err).Error()+fault.From(err).Message, want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
