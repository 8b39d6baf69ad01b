package volume

import (
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// cuts is a store that cuts every answer off after so many bytes.
type cuts struct{ after int64 }

func (c cuts) RoundTrip(q *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(q)
	if err == nil && q.Method == http.MethodGet {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, c.after), res.Body}
	}
	return res, err
}

// A restore goes on where it was cut off, however often: no answer of the store is as long as the pack.
func TestARestoreThatIsCutOffGoesOn(t *testing.T) {
	p := newPlatform(t)
	root := newRoot(t)
	b := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	v := p.attach(t, root)
	if err := os.WriteFile(filepath.Join(dataOf(root), "f"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	v.mustSnapshot(t)
	want := listing(t, dataOf(root))
	again := newRoot(t)
	cfg := p.config(again)
	cfg.HTTP = &http.Client{Transport: cuts{after: 5 << 19}}
	next, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := next.Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := listing(t, dataOf(again)); got != want {
		t.Errorf("restored:\n%s\nwritten:\n%s", got, want)
	}
}
