package base

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
)

// The clusters of the test: those of a name that ends as a rank does, with and without one of the name before the dot.
func TestRank_NameIsReadWhole(t *testing.T) {
	t.Parallel()
	var all []client.Cluster
	add := func(name string, state client.State) id.Cluster {
		v := client.Cluster{ID: id.New[id.Cluster](), Name: name, State: state}
		all = append(all, v)
		return v.ID
	}
	llama, llama31 := add("llama-3", "running"), add("llama-3.1", "running")
	qwen := add("qwen2.5", "released")
	exp, idLike := add("exp", "running"), add("cl_train", "running")
	add("exp.2", "released")
	old := add("old", "failed")
	for arg, want := range map[string]struct {
		id   id.Cluster
		rank int
	}{
		"llama-3": {llama, 0}, "llama-3.1": {llama31, 0}, "llama-3.0": {llama, 0}, "llama-3.2": {llama, 2},
		"llama-3.1.1": {llama31, 1}, "qwen2.5": {qwen, 0}, "qwen2.5.3": {qwen, 3}, "exp.1": {exp, 1},
		"cl_train": {idLike, 0}, "cl_train.4": {idLike, 4}, "old.1": {old, 1},
	} {
		if got, rank, err := rankNamed(all, arg); err != nil || got != want.id || rank != want.rank {
			t.Errorf("%s: %s rank %d %v", arg, got, rank, err)
		}
	}
	for arg, want := range map[string]string{
		"exp.2": "with --node 2", "exp.01": "no cluster is called exp.01", "exp.+1": "no cluster",
		"llama-4.1": "did you mean llama-3.1?", "cl_none": "cluster not found", "exp.": "no cluster", ".1": "no cluster",
	} {
		if _, _, err := rankNamed(all, arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
