package web_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// A live page that is open ends soon after its session does.
func TestLivePagesEndWithTheirSession(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	cl := id.New[id.Cluster]()
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency) SELECT $1, $2, id, 'train', '{}', 'job:1', 'provisioning', 1, 1, 7200000, 'USD' FROM app_user`, cl, b.org())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/clusters/"+cl.String()+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	if first, err := events.ReadString('\n'); err != nil || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %q, %v", res.Status, first, err)
	}
	b.exec("DELETE FROM session")
	if _, err := io.Copy(io.Discard, events); errors.Is(err, context.DeadlineExceeded) {
		t.Error("the page of a session that has ended goes on")
	}
}
