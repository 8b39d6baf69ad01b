package api_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// A page of clusters is encoded once for all who share its read. It shows each cluster as its own address does, and its
// length comes before it.
func TestAPageOfClustersShowsEachAsItsOwnAddressDoes(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("renter")
	w.sell(w.user("op"), 4, "2.00")
	w.fund(renter, "100.00")
	var made []string
	for range 3 {
		r := w.want(w.call(renter, "POST", "/api/v1/clusters",
			`{"name":"a","command":["<a>&"],"nodes":1,"gpus_per_node":1,"image":"registry.test/job:1","labels":{"team":"vision"}}`), 202, "")
		made = append(made, r.text("id"))
	}
	after := ""
	var shown []string
	for range 2 {
		r := w.want(w.call(renter, "GET", "/api/v1/clusters?limit=2&after="+after, nil), 200, "")
		if r.ContentLength != int64(len(r.raw)) || len(r.TransferEncoding) > 0 {
			t.Errorf("length %d of %d bytes, sent %v", r.ContentLength, len(r.raw), r.TransferEncoding)
		}
		var page struct {
			Items []map[string]json.RawMessage `json:"items"`
			Next  *string                      `json:"next"`
		}
		if err := json.Unmarshal([]byte(r.raw), &page); err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			cl := strings.Trim(string(item["id"]), `"`)
			shown = append(shown, cl)
			var alone map[string]json.RawMessage
			one := w.want(w.call(renter, "GET", "/api/v1/clusters/"+cl, nil), 200, "")
			if err := json.Unmarshal([]byte(one.raw), &alone); err != nil {
				t.Fatal(err)
			}
			plain := func(m map[string]json.RawMessage) map[string]string {
				out := map[string]string{}
				for k, v := range m {
					var any any
					if err := json.Unmarshal(v, &any); err != nil {
						t.Fatal(err)
					}
					b, _ := json.Marshal(any) // the same text however it was escaped
					out[k] = string(b)
				}
				return out
			}
			if a, b := plain(item), plain(alone); !maps.Equal(a, b) {
				t.Errorf("in the list:\n%v\nalone:\n%v", a, b)
			}
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	if want := made[2] + made[1] + made[0]; strings.Join(shown, "") != want {
		t.Errorf("shown %v of %v, newest first", shown, made)
	}
}
