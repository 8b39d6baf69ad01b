package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/musterhq/muster/bench/table"
)

// bed makes failures of the test net, and of what stands on it, errors of the benchmark.
type bed struct {
	testing.TB
	ctx    context.Context
	failed bool
	undo   []func()
}

type failure string

func (b *bed) Helper()                   {}
func (b *bed) Name() string              { return "bench" }
func (b *bed) Context() context.Context  { return b.ctx }
func (b *bed) Failed() bool              { return b.failed }
func (b *bed) Cleanup(f func())          { b.undo = append(b.undo, f) }
func (b *bed) Log(args ...any)           { fmt.Fprintln(os.Stderr, args...) }
func (b *bed) Logf(f string, a ...any)   { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (b *bed) Error(args ...any)         { b.failed = true; b.Log(args...) }
func (b *bed) Errorf(f string, a ...any) { b.failed = true; b.Logf(f, a...) }
func (b *bed) Fatal(args ...any)         { b.failed = true; panic(failure(fmt.Sprint(args...))) }
func (b *bed) Fatalf(f string, a ...any) { b.failed = true; panic(failure(fmt.Sprintf(f, a...))) }

// onBed measures, and undoes what was made for it.
func onBed(ctx context.Context, measure func(*bed) ([]table.Row, error)) (_ []table.Row, err error) {
	b := &bed{ctx: ctx}
	defer func() {
		for i := len(b.undo) - 1; i >= 0; i-- {
			b.undo[i]()
		}
	}()
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = errors.New(string(f))
		default:
			panic(f)
		}
	}()
	return measure(b)
}
