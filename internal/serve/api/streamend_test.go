package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/serve/api"
)

// An open stream ends soon after its token is revoked. This one follows the logs of a cluster that has not begun.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	w := open(t, func(_ *api.Config, a *account.Config) { a.RecheckEvery = 10 * time.Millisecond })
	renter := w.user("ada")
	w.sell(w.user("op"), 8, "2.00")
	w.fund(renter, "100.00")
	cl := w.want(w.call(renter, "POST", "/api/v1/clusters", `{"nodes":1,"gpus_per_node":1,"image":"registry.test/job:1"}`),
		202, "").text("id")
	made := w.want(w.call(renter, "POST", "/api/v1/tokens", `{"name":"logs","scopes":["read"]}`), 201, "")
	srv := httptest.NewServer(w.api)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/v1/clusters/"+cl+"/logs?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+made.text("token"))
	res, err := http.DefaultClient.Do(r) // a follower gets the headers before the first line
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	w.want(w.call(renter, "DELETE", "/api/v1/tokens/"+made.text("id"), nil), 204, "")
	if _, err := io.Copy(io.Discard, res.Body); errors.Is(err, context.DeadlineExceeded) {
		t.Error("the stream of a revoked token goes on")
	}
}
