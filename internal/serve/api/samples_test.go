package api_test

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// refusedSamples are the examples that are right but for what the platform of this test lacks.
var refusedSamples = map[string]string{
	"changePassword": "old_password: is wrong",
	"deleteMe":       "confirm: has to be your e-mail address",
	"remitTax":       "country: nothing is left to remit there for 2026-Q1",
}

// Each operation of the document is called as its example with curl calls it, by an administrator. The server reads the
// path, the query and the body: it may answer that there is no such object, and it does not call the request invalid.
func TestSamples_AreValidRequests(t *testing.T) {
	t.Parallel()
	w := open(t)
	var document struct {
		Paths map[string]map[string]struct {
			ID      string                           `json:"operationId"`
			Samples []struct{ Label, Source string } `json:"x-codeSamples"`
		}
	}
	if err := json.Unmarshal([]byte(w.call("", "GET", "/api/v1/openapi.json", nil).raw), &document); err != nil {
		t.Fatal(err)
	}
	admin := w.boss("root")
	calls := 0
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(document.Paths[path])) {
			op := document.Paths[path][method]
			for _, s := range op.Samples {
				if s.Label != "curl" {
					continue
				}
				calls++
				c := parseCurl(t, s.Source)
				if c.method != strings.ToUpper(method) {
					t.Errorf("%s: the example sends %s", op.ID, c.method)
				}
				var body any
				if c.body != "" {
					body = c.body
				}
				if op.ID == "createBucket" { // its store is asked: one that is here, with what it accepts
					body = w.onStore(c.body)
				}
				if c.headers == nil && method == "post" {
					t.Errorf("%s: the example sends no Idempotency-Key", op.ID)
				}
				r := w.call(admin, c.method, strings.TrimPrefix(c.url, "http://muster.test"), body, c.headers...)
				if r.StatusCode == 401 { // an example has deleted the account
					admin = w.boss(op.ID)
					r = w.call(admin, c.method, strings.TrimPrefix(c.url, "http://muster.test"), body, c.headers...)
				}
				if r.StatusCode == 500 || r.StatusCode == 422 && r.text("detail") != refusedSamples[op.ID] {
					t.Errorf("%s answers %d: %s\n%s\n%s", op.ID, r.StatusCode, r.text("detail"), s.Source, w.log)
				}
			}
		}
	}
	if calls < 150 {
		t.Errorf("only %d operations have an example", calls)
	}
}

type curlCall struct {
	method, url, body string
	headers           []string
}

// parseCurl reads a command line of curl as a shell does.
func parseCurl(t *testing.T, line string) curlCall {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(file.Stmts) != 1 {
		t.Fatalf("not one command: %s", line)
	}
	words, err := expand.Fields(&expand.Config{
		Env:      expand.ListEnviron("MUSTER_TOKEN=x"),
		CmdSubst: func(io.Writer, *syntax.CmdSubst) error { return nil },
	}, call.Args...)
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	c := curlCall{method: "GET"}
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-X":
			i++
			c.method = words[i]
		case "-d":
			i++
			c.body = words[i]
		case "-H":
			i++
			if name, value, _ := strings.Cut(words[i], ": "); name == "Idempotency-Key" {
				c.headers = append(c.headers, name, "sample"+value)
			}
		default:
			c.url = words[i]
		}
	}
	return c
}
