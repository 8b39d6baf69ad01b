package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// sharedAPI answers the routes of shared file systems.
type sharedAPI struct {
	shared *sharedfs.Shared
}

func viewShared(f sharedfs.FS) client.SharedFS {
	out := client.SharedFS{
		ID: f.ID, Name: f.Name, Kind: f.Kind, Type: f.Type, QuotaGB: f.QuotaGB, SizeGB: f.SizeGB, Hosts: f.Hosts,
		Regions: append([]string{}, f.Regions...), Own: f.Own, CreatedAt: f.CreatedAt.UTC(),
		Problems: []client.SharedProblem{},
	}
	if d := f.Data; d != nil {
		out.Data = &client.SharedData{UsedBytes: d.UsedBytes, Closed: d.Closed, Problem: d.Problem, Clusters: d.Clusters,
			LastUsedAt: d.LastUsed.UTC()}
		if !d.DeleteAt.IsZero() {
			at := d.DeleteAt.UTC()
			out.Data.DeleteAt = &at
		}
	}
	for _, p := range f.Problems {
		out.Problems = append(out.Problems, client.SharedProblem{Host: p.Host, Problem: p.Problem})
	}
	return out
}

func (a sharedAPI) list(ctx context.Context, p account.Principal, _ *struct{}) (list[client.SharedFS], error) {
	all, err := a.shared.List(ctx, p.Org)
	return cut(all, len(all), viewShared, func(f sharedfs.FS) string { return f.Name }), err
}

func (a sharedAPI) declare(ctx context.Context, p account.Principal, in *create[client.NewSharedFS],
	once idem.Request) (client.SharedFS, idem.Outcome, error) {
	f, out, err := a.shared.Declare(ctx, p, sharedfs.NewFS{
		Name: in.Body.Name, Kind: in.Body.Kind, QuotaGB: in.Body.QuotaGB,
	}, idem.As(once, viewShared))
	return viewShared(f), out, err
}

func (a sharedAPI) withdraw(ctx context.Context, p account.Principal, in *of[id.SharedFS]) (nothing, error) {
	return nothing{}, a.shared.Withdraw(ctx, p, in.ID)
}

func (a sharedAPI) erase(ctx context.Context, p account.Principal, in *of[id.SharedFS]) (nothing, error) {
	return nothing{}, a.shared.Erase(ctx, p, in.ID)
}
