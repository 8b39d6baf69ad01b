package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/serve/api"
)

// TestTheClientIsCurrent: the committed methods of the client are those of the table of routes.
func TestTheClientIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := generate(api.Operations())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../client/methods_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("client/methods_gen.go is stale: run make generate")
	}
}

// TestByHandExists: every exception is an operation.
func TestByHandExists(t *testing.T) {
	t.Parallel()
	ops := api.Operations()
	for name := range byHand {
		if !slices.ContainsFunc(ops, func(op api.Operation) bool { return op.Name == name }) {
			t.Errorf("there is no operation %s", name)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	volumes := []string{"Volumes", "Volume"}
	for op, want := range map[string]string{
		"listVolumes": "List", "listVolumeSnapshots": "ListSnapshots", "openTransfer": "OpenTransfer", "actOnVolume": "Act",
	} {
		if got := methodName(op, volumes); got != want {
			t.Errorf("%s is %s, want %s", op, got, want)
		}
	}
	if got := methodName("readNotices", []string{"Notices", "Notice"}); got != "ReadNotices" {
		t.Errorf("readNotices is %s", got)
	}
	if got := wrap("// "+strings.Repeat("word ", 30)+"end", " ", "// "); strings.Count(got, "\n// ") != 1 ||
		strings.Contains(got, " \n") {
		t.Errorf("wrapped: %q", got)
	}
	for summary, want := range map[string]string{
		"List volumes": "lists volumes", "Search offers": "searches offers", "Pay it": "pays it", "Verify it": "verifies it",
	} {
		if got := thirdPerson(summary); got != want {
			t.Errorf("%q is %q, want %q", summary, got, want)
		}
	}
}
