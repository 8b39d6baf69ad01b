package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A replica that cannot start says why.
func TestAStartThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := Start(ctx, Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none?connect_timeout=5"},
		slog.New(slog.DiscardHandler))
	if a != nil || err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v, %v", a, err)
	}
}
