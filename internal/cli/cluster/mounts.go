package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// What --mount takes.
const (
	wantVolume = "want VOLUME:PATH[:ro|:ranks][:every=SECONDS] or VOLUME:PATH:ro:lazy[:cache=GB], such as " +
		"training-data:/data"
	wantBucket = "want bucket:NAME:PATH[:ro][:cache=GB], such as bucket:results:/results"
	wantShared = "want shared:NAME:PATH[:ro], such as shared:lab-nfs:/shared"
)

// readMounts reads --mount. Names of volumes and buckets are looked up.
func (f *specFlags) readMounts(cmd *cobra.Command, s *client.Spec) error {
	for _, arg := range f.mounts {
		m, err := f.readMount(cmd, arg)
		if err != nil {
			return err
		}
		s.Mounts = append(s.Mounts, m)
	}
	return nil
}

func (f *specFlags) readMount(cmd *cobra.Command, arg string) (client.Mount, error) {
	kind, rest := kindOf(arg)
	switch kind {
	case "shared":
		return sharedMount(rest)
	case "bucket":
		return f.bucketMount(cmd, rest)
	}
	return f.volumeMount(cmd, rest)
}

// kindOf returns what a mount is of, "volume", "bucket" or "shared", and the rest of it. It is a volume unless it says
// otherwise. An id of a bucket needs no such word. "bucket:/data" is a volume of that name.
func kindOf(arg string) (kind, rest string) {
	for _, kind := range []string{"volume", "bucket", "shared"} {
		if rest, ok := strings.CutPrefix(arg, kind+":"); ok && !strings.HasPrefix(rest, "/") {
			return kind, rest
		}
	}
	if strings.HasPrefix(arg, "bkt_") {
		return "bucket", arg
	}
	return "volume", arg
}

// volumeMount reads VOLUME:PATH and what follows it.
func (f *specFlags) volumeMount(cmd *cobra.Command, arg string) (client.Mount, error) {
	words := strings.Split(arg, ":")
	if len(words) < 2 {
		return client.Mount{}, fault.InvalidField("--mount", "%s", wantVolume)
	}
	m := client.Mount{Path: words[1], Mode: "rw", Snapshot: client.SnapshotPolicy{OnNotice: true, OnEnd: true}}
	for _, word := range words[2:] {
		every, periodic := strings.CutPrefix(word, "every=")
		cache, cached := strings.CutPrefix(word, "cache=")
		switch {
		case word == "ro" || word == "rw" || word == "ranks":
			m.Mode = word
		case word == "lazy":
			m.Lazy = true
		case periodic:
			s, err := base.ParseSeconds(every)
			if err != nil {
				return m, fault.InvalidField("--mount", "every=: %s", err)
			}
			m.Snapshot.EveryS = int(s)
		case cached:
			gb, err := base.ParseGB(cache)
			if err != nil {
				return m, fault.InvalidField("--mount", "cache=: %s", err)
			}
			m.CacheGB = gb
		default:
			return m, fault.InvalidField("--mount", wantVolume+", not %s", word)
		}
	}
	if m.Mode == "ro" {
		m.Snapshot = client.SnapshotPolicy{}
	}
	var err error
	if m.Volume, err = id.Parse[id.Volume](words[0]); err != nil && f.session != nil {
		m.Volume, err = base.FindVolume(cmd.Context(), f.session.Client(cmd), words[0])
	}
	return m, err
}

// bucketMount reads NAME:PATH and what follows it.
func (f *specFlags) bucketMount(cmd *cobra.Command, arg string) (client.Mount, error) {
	words := strings.Split(arg, ":")
	if len(words) < 2 {
		return client.Mount{}, fault.InvalidField("--mount", wantBucket)
	}
	m := client.Mount{Path: words[1], Mode: "rw"}
	for _, word := range words[2:] {
		cache, cached := strings.CutPrefix(word, "cache=")
		switch {
		case word == "ro" || word == "rw":
			m.Mode = word
		case cached:
			gb, err := base.ParseGB(cache)
			if err != nil {
				return m, fault.InvalidField("--mount", "cache=: %s", err)
			}
			m.CacheGB = gb
		default:
			return m, fault.InvalidField("--mount", wantBucket+", not %s", word)
		}
	}
	var err error
	if m.Bucket, err = id.Parse[id.Bucket](words[0]); err != nil && f.session != nil {
		m.Bucket, err = base.FindBucket(cmd.Context(), f.session.Client(cmd), words[0])
	}
	return m, err
}

// sharedMount reads NAME:PATH[:ro].
func sharedMount(arg string) (client.Mount, error) {
	words := strings.Split(arg, ":")
	m := client.Mount{Shared: words[0], Mode: "rw"}
	switch {
	case len(words) == 3 && (words[2] == "ro" || words[2] == "rw"):
		m.Mode = words[2]
	case len(words) != 2:
		return m, fault.InvalidField("--mount", wantShared)
	}
	m.Path = words[1]
	return m, nil
}

// mounted is what a cluster has mounted, with how durable it is.
type mounted struct {
	path, name, mode, durable, pending, problem string
}

// mountsOf reads what a cluster has mounted. What the token may not read, or what is deleted, is shown by its id.
func mountsOf(ctx context.Context, c *client.Client, cl client.Cluster) ([]mounted, error) {
	var out []mounted
	for _, m := range cl.Spec.Mounts {
		row := mounted{path: m.Path, mode: m.Mode}
		var err error
		switch {
		case m.Shared != "":
			row.name, row.durable = "shared:"+m.Shared, "what its server has stored"
		case !m.Bucket.IsZero():
			row.name, row.durable = m.Bucket.String(), "what is uploaded"
			var b client.Bucket
			if b, err = c.Buckets.Get(ctx, m.Bucket); err == nil {
				row.name, row.problem = "bucket:"+b.Name, b.Problem
			}
		default:
			row.name = m.Volume.String()
			if m.Lazy {
				row.mode = fmt.Sprintf("%s, lazy, %d GB of cache", m.Mode, m.CacheGB)
			}
			var v client.Volume
			if v, err = c.Volumes.Get(ctx, m.Volume); err == nil {
				row.fill(v, cl)
			}
		}
		if fault.Is(err, fault.NotFound) {
			row.problem = "deleted"
		} else if err != nil && !fault.Is(err, fault.Forbidden) {
			return nil, err
		}
		out = append(out, row)
	}
	return out, nil
}

// fill adds what a volume says. What is not durable yet is only reported by the cluster that writes it.
func (m *mounted) fill(v client.Volume, cl client.Cluster) {
	m.name, m.durable = v.Name, base.Durable(v)
	if v.ClusterID == nil || *v.ClusterID != cl.ID || v.ClusterEndedAt != nil {
		return
	}
	m.pending, m.problem = base.Pending(v), v.Problem
}

// printMounts prints what a cluster has mounted.
func printMounts(p *base.Printer, all []mounted) {
	if len(all) == 0 {
		return
	}
	p.Line("")
	rows := make([][]string, len(all))
	for i, m := range all {
		rows[i] = []string{m.path, m.name, m.mode, base.OrDash(m.durable), base.OrDash(m.pending), m.problem}
	}
	p.Table([]string{"MOUNTED AT", "WHAT", "MODE", "DURABLE UP TO", "NOT DURABLE YET", ""}, rows)
}
