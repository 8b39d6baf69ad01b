// Package volume is muster volume: data that follows to any host.
package volume

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// Command is muster volume.
func Command(s *base.Session) *cobra.Command {
	cmd := base.Noun("volume", "Data that follows to any host: volumes, their snapshots and files",
		list(s), show(s), create(s), set(s), remove(s), snapshot(s), snapshots(s), restore(s), clone(s), files(s),
		download(s), copyFiles(s))
	cmd.Example = `  muster volume create training-data --size 100
  muster cluster create --image pytorch/pytorch:2.4.0 --mount training-data:/data:every=600 -- python train.py
  muster volume snapshot training-data
  muster volume snapshots training-data
  muster volume files training-data checkpoints
  muster volume get training-data checkpoints/model.pt --out model.pt
  muster volume cp ./data training-data:/data
  muster volume restore training-data 12
  muster volume clone training-data training-data-2
  muster volume set training-data --size 200
  muster volume delete training-data`
	return cmd
}

func list(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisation's volumes", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Volumes.List(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, v := range all.Items {
					rows[i] = []string{v.Name, v.ID.String(), fmt.Sprintf("%d GB", v.SizeGB), base.Bytes(v.StoredBytes),
						v.PricePerHour.Plain(), base.Durable(v), owed(v)}
				}
				p.Table([]string{"NAME", "ID", "SIZE", "STORED", "PER HOUR", "DURABLE TO", "OWED"}, rows)
			})
		},
	}
}

func show(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show VOLUME", Short: "Show a volume, and up to when it is durable", Args: base.Exactly("VOLUME"),
		Example: "  muster volume show training-data",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			v, err := c.Volumes.Get(cmd.Context(), id)
			return s.Result(cmd, v, err, func(p *base.Printer) { print(p, v) })
		},
	}
}

// writerOf returns the cluster that writes a volume, or wrote it last, and what to call it; "" if there is none.
func writerOf(v client.Volume) (called, cluster string) {
	switch {
	case v.ClusterID == nil:
		return "Written by", ""
	case v.ClusterEndedAt != nil:
		return "Last written by", v.ClusterID.String()
	}
	return "Written by", v.ClusterID.String()
}

func print(p *base.Printer, v client.Volume) {
	writer, cluster := writerOf(v)
	p.Facts("Volume", v.Name, "Id", v.ID.String(), "Size", fmt.Sprintf("%d GB", v.SizeGB), "Durable to", base.Durable(v),
		"Label", v.Label, "Consistency", v.Consistency, "Not durable yet", base.Pending(v), "Problem", v.Problem,
		"Files", strconv.FormatInt(v.Files, 10), "Their size", base.Bytes(v.Bytes),
		"Stored", base.Bytes(v.StoredBytes), "Price per hour", v.PricePerHour.Plain(),
		"Snapshots", strconv.FormatInt(v.Snapshots, 10), "Keeps the last", strconv.Itoa(v.Keep), writer, cluster,
		"Owed for storage", owed(v))
}

// owed formats what is not paid for a volume, and what happens if it stays so; "" if nothing is owed.
func owed(v client.Volume) string {
	switch {
	case v.HidesAt == nil || v.ErasesAt == nil:
		return ""
	case v.HiddenAt != nil:
		return fmt.Sprintf("%s: hidden until it is paid, erased on %s", v.Owed.Plain(),
			v.ErasesAt.UTC().Format(time.DateOnly))
	}
	return fmt.Sprintf("%s: hidden on %s, erased on %s unless it is paid", v.Owed.Plain(),
		v.HidesAt.UTC().Format(time.DateOnly), v.ErasesAt.UTC().Format(time.DateOnly))
}

func create(s *base.Session) *cobra.Command {
	var n client.NewVolume
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an empty volume", Args: base.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.Name = args[0]
			v, err := s.Client(cmd).Volumes.Create(cmd.Context(), n)
			return s.Result(cmd, v, err, func(p *base.Printer) { print(p, v) })
		},
	}
	base.Gigabytes(cmd.Flags(), &n.SizeGB, "size", 10, "what its files may take together, such as 100, 100GB or 2TB")
	cmd.Flags().IntVar(&n.Keep, "keep", 0, "last snapshots that are kept whatever their age (default 3)")
	return cmd
}

func set(s *base.Session) *cobra.Command {
	var name string
	var size int64
	var keep int
	cmd := &cobra.Command{
		Use: "set VOLUME", Short: "Change a volume's name, size or retention", Args: base.Exactly("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			var n client.VolumeChange
			if cmd.Flags().Changed("name") {
				n.Name = &name
			}
			if cmd.Flags().Changed("size") {
				n.SizeGB = &size
			}
			if cmd.Flags().Changed("keep") {
				n.Keep = &keep
			}
			v, err := c.Volumes.Change(cmd.Context(), id, n)
			return s.Result(cmd, v, err, func(p *base.Printer) { print(p, v) })
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the new name")
	base.Gigabytes(cmd.Flags(), &size, "size", 0, "the new size, from the next start on")
	cmd.Flags().IntVar(&keep, "keep", 0, "last snapshots that are kept")
	return cmd
}

func remove(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete VOLUME", Short: "Delete a volume with all its snapshots; billing ends at once",
		Args: base.Exactly("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err == nil {
				err = c.Volumes.Delete(cmd.Context(), id)
			}
			return s.Result(cmd, struct{}{}, err, func(p *base.Printer) { p.Line("Deleted the volume %s.", args[0]) })
		},
	}
}

func snapshot(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "snapshot VOLUME", Short: "Request a snapshot from the host that has the volume", Args: base.Exactly("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			r, err := c.Volumes.Snapshot(cmd.Context(), id)
			return s.Result(cmd, r, err, func(p *base.Printer) {
				p.Line("Requested %s. It is durable once muster volume snapshots %s lists it.", r.ID, args[0])
			})
		},
	}
}

func snapshots(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "snapshots VOLUME", Short: "List a volume's snapshots, newest first", Args: base.Exactly("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			all, err := c.Volumes.ListSnapshots(cmd.Context(), id)
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, x := range all.Items {
					rows[i] = []string{strconv.FormatInt(x.Seq, 10), x.CutAt.UTC().Format(time.DateTime), x.Cause, x.Label,
						strconv.FormatInt(x.Files, 10), base.Bytes(x.Bytes), base.Bytes(x.AddedBytes), consistencyOf(x)}
				}
				p.Table([]string{"SEQ", "SHOWS", "CAUSE", "LABEL", "FILES", "SIZE", "ADDED", "CONSISTENCY"}, rows)
			})
		},
	}
}

// consistencyOf says how the files of a snapshot belong together, and whether all of them can be read.
func consistencyOf(x client.VolumeSnapshot) string {
	out := x.Consistency
	if !x.Whole {
		out += ", not of all ranks"
	}
	if x.LostPacks > 0 {
		out += fmt.Sprintf(", cannot be restored whole: %d parts are lost", x.LostPacks)
	}
	return out
}

func restore(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "restore VOLUME SEQ", Short: "Make an earlier snapshot the volume's present state; nothing is lost",
		Args: base.Exactly("VOLUME", "SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			seq, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil {
				return fault.InvalidField("SEQ", "want the number of a snapshot, see muster volume snapshots")
			}
			x, err := c.Volumes.Restore(cmd.Context(), id, client.SnapshotChoice{Seq: seq})
			return s.Result(cmd, x, err, func(p *base.Printer) {
				p.Line("The volume is as it was at %s, which is now snapshot %d.", x.CutAt.UTC().Format(time.DateTime), x.Seq)
			})
		},
	}
}

func clone(s *base.Session) *cobra.Command {
	var n client.NewClone
	cmd := &cobra.Command{
		Use: "clone VOLUME NAME", Short: "Create a volume from a snapshot; it costs nothing until it changes",
		Args: base.Exactly("VOLUME", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			n.Name = args[1]
			v, err := c.Volumes.Clone(cmd.Context(), id, n)
			return s.Result(cmd, v, err, func(p *base.Printer) { print(p, v) })
		},
	}
	cmd.Flags().Int64Var(&n.Seq, "seq", 0, "number of the snapshot (default: the last one)")
	return cmd
}

func files(s *base.Session) *cobra.Command {
	var seq int64
	cmd := &cobra.Command{
		Use: "files VOLUME [PATH]", Short: "List a directory of a snapshot",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fault.New(fault.Invalid, "want VOLUME and perhaps PATH, such as "+
					"muster volume files training-data checkpoints")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			at := ""
			if len(args) == 2 {
				at = args[1]
			}
			all, err := c.Volumes.ListFiles(cmd.Context(), id, at, seq)
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, f := range all.Items {
					name := f.Name
					switch f.Kind {
					case "dir":
						name += "/"
					case "symlink":
						name += " -> " + f.Target
					}
					rows[i] = []string{f.Mode, base.Bytes(f.Bytes), f.ModifiedAt.UTC().Format(time.DateTime), name}
				}
				p.Table([]string{"MODE", "SIZE", "CHANGED", "NAME"}, rows)
			})
		},
	}
	cmd.Flags().Int64Var(&seq, "seq", 0, "number of the snapshot (default: the last one)")
	return cmd
}

func download(s *base.Session) *cobra.Command {
	var seq int64
	var out string
	cmd := &cobra.Command{
		Use: "get VOLUME PATH", Short: "Download a file of a snapshot", Args: base.Exactly("VOLUME", "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			id, err := base.FindVolume(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if out == "-" {
				return c.Volumes.GetContent(cmd.Context(), cmd.OutOrStdout(), id, args[1], seq)
			}
			to := base.FirstOf(out, path.Base(args[1]))
			tmp := to + ".part"
			f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			if err != nil {
				return fault.New(fault.Invalid, "%s cannot be written: %s", tmp, err)
			}
			err = c.Volumes.GetContent(cmd.Context(), f, id, args[1], seq)
			if err2 := f.Close(); err == nil {
				err = err2
			}
			if err == nil {
				err = os.Rename(tmp, to)
			} else {
				_ = os.Remove(tmp)
			}
			return s.Result(cmd, struct{}{}, err, func(p *base.Printer) { p.Line("Wrote %s.", to) })
		},
	}
	cmd.Flags().Int64Var(&seq, "seq", 0, "number of the snapshot (default: the last one)")
	cmd.Flags().StringVar(&out, "out", "", "file to write, or - for standard output (default: the file's name)")
	return cmd
}
