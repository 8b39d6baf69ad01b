package id

import (
	"encoding/json"
	"sort"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestTextRoundTrip(t *testing.T) {
	t.Parallel()
	for range 1000 {
		v := New[Cluster]()
		got, err := Parse[Cluster](v.String())
		if err != nil || got != v {
			t.Fatalf("Parse(%q) = %v, %v", v, got, err)
		}
	}
	if got := FromUUID[Cluster](uuid.Max).String(); got != "cl_7zzzzzzzzzzzzzzzzzzzzzzzzz" {
		t.Errorf("max = %q", got)
	}
}

func TestTextOrderIsCreationOrder(t *testing.T) {
	t.Parallel()
	var s []string
	for range 100 {
		s = append(s, New[Host]().String())
	}
	if !sort.StringsAreSorted(s) {
		t.Errorf("not sorted: %v", s)
	}
}

func TestFrom(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Millisecond)
	v := New[Cluster]()
	if From[Cluster](before).Compare(v) > 0 || From[Cluster](before.Add(time.Second)).Compare(v) < 0 {
		t.Errorf("From(%s) = %v is not just before %v", before, From[Cluster](before), v)
	}
	if u := From[Cluster](before).UUID(); u.Version() != 7 || u.Variant() != uuid.RFC4122 {
		t.Errorf("%v is no UUIDv7", u)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := New[Cluster]().String()
	for _, s := range []string{"", "cl_", "cl", good + "0", "host" + good[2:], "cl_8" + good[4:], "cl_" + "u" + good[4:],
		"CL" + good[2:]} {
		if _, err := Parse[Cluster](s); err == nil {
			t.Errorf("Parse(%q) took it", s)
		}
	}
}

func TestZeroIsNothing(t *testing.T) {
	t.Parallel()
	var v struct {
		C Cluster `json:"c"`
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) != `{"c":""}` {
		t.Fatalf("%s %v", b, err)
	}
	p, _ := v.C.UUIDValue()
	if p.Valid {
		t.Error("zero id is not NULL")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cl_01jd9w6n3q0000000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Parse[Cluster](s)
		if err == nil && !v.IsZero() && v.String() != s {
			t.Errorf("%q reads as %q", s, v)
		}
	})
}
