package db

import "testing"

func TestLatestIsNumbered(t *testing.T) {
	t.Parallel()
	v, err := latest()
	if err != nil || v < 7 {
		t.Fatalf("latest = %d, %v", v, err)
	}
}
