package cli

import "context"

type environKey struct{}

// withEnviron returns a context that carries the environment of the command, KEY=value.
func withEnviron(ctx context.Context, environ []string) context.Context {
	return context.WithValue(ctx, environKey{}, environ)
}

// environFrom is the environment the command was started with, KEY=value.
func environFrom(ctx context.Context) []string {
	e, _ := ctx.Value(environKey{}).([]string)
	return e
}
