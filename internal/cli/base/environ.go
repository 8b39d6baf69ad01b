package base

import "context"

type environKey struct{}

// WithEnviron returns a context that carries the environment of the command, KEY=value.
func WithEnviron(ctx context.Context, environ []string) context.Context {
	return context.WithValue(ctx, environKey{}, environ)
}

// EnvironFrom returns the environment that the command was started with.
func EnvironFrom(ctx context.Context) []string {
	e, _ := ctx.Value(environKey{}).([]string)
	return e
}
