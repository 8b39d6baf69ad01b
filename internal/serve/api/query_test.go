package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/serve/api"
)

var inBraces = regexp.MustCompile(`\{[^}]*\}`)

// Each operation of the API names a query parameter that it does not have, before it does anything.
func TestQuery_UnknownParameterIsNamed(t *testing.T) {
	t.Parallel()
	w := open(t)
	admin := w.boss("boss")
	for _, o := range api.Operations() {
		path := api.Base + inBraces.ReplaceAllString(o.Path, "x")
		r := w.call(admin, o.Method, path+"?colour=red&utm_source=x", nil)
		w.want(r, http.StatusUnprocessableEntity, "validation_failed")
		if got := fmt.Sprint(r.list("errors")); !strings.Contains(got, "query.colour") ||
			!strings.Contains(got, "query.utm_source") {
			t.Errorf("%s %s: %s", o.Method, o.Path, r.raw)
		}
	}
	r := w.want(w.call(admin, "GET", api.Base+"/clusters?stat=running", nil), 422, "validation_failed")
	if got := r.text("detail"); got != "query.stat: unknown parameter; did you mean state?" {
		t.Error(got)
	}
	w.want(w.call(admin, "GET", api.Base+"/clusters?state=running&limit=1&after=", nil), 200, "")
	w.want(w.call("", "GET", "/healthz?probe=1", nil), 200, "") // outside of the API
}

func TestHead_AnswersAsGetWithoutABody(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("ada")
	cl := w.rented(renter)
	s := httptest.NewServer(w.api)
	defer s.Close()
	head := func(method, path, token string) (int, http.Header, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header, string(b)
	}
	for _, path := range []string{"/api/v1/me", "/api/v1/clusters?limit=1", "/api/v1/clusters/" + cl,
		"/api/v1/clusters/" + cl + "/logs?follow=true", "/api/v1/clusters/x", "/api/v1/billing/statement.csv",
		"/api/v1/me/export", "/api/v1/openapi.json", "/api/v1/none", "/healthz", "/api/v1/clusters?stat=1",
		"/api/v1/signup"} {
		get := strings.Replace(path, "follow=true", "", 1)
		for _, token := range []string{renter, "muster_pat_none"} {
			want, headers, _ := head("GET", get, token)
			status, got, body := head("HEAD", path, token)
			if status != want || body != "" || got.Get("Content-Type") != headers.Get("Content-Type") {
				t.Errorf("HEAD %s: %d %q %s, GET: %d %s", path, status, body, got.Get("Content-Type"), want,
					headers.Get("Content-Type"))
			}
		}
	}
	if status, _, _ := head("DELETE", "/api/v1/clusters/"+cl, "muster_pat_none"); status != 401 {
		t.Errorf("DELETE without a token: %d", status)
	}
}
