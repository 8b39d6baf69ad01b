package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/sftp"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func clusterCopy(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "cp SOURCE… TARGET",
		Short: "Copy files and folders to or from a rank",
		Long: `Copy files and folders, with all that is in them, to or from a rank of a running cluster. A place on
a cluster is CLUSTER:PATH or CLUSTER.RANK:PATH; a path that does not begin with / is below the user's home. A target
that is a folder takes the sources in. It needs no SSH key: your token is enough.`,
		Example: `  muster cluster cp data train:/work
  muster cluster cp train.1:checkpoints/last.pt .`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := parsePlace(args[len(args)-1])
			var from []place
			for _, a := range args[:len(args)-1] {
				from = append(from, parsePlace(a))
			}
			return copyAll(cmd, s, from, to)
		},
	}
}

// place is a path here or on a rank.
type place struct {
	cluster string // "" = here
	rank    int
	path    string
}

func parsePlace(arg string) place {
	name, rest, colon := strings.Cut(arg, ":")
	if !colon || strings.ContainsAny(name, `/\`) || name == "" {
		return place{path: arg}
	}
	p := place{cluster: name, path: rest}
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil && n >= 0 {
			p.cluster, p.rank = name[:i], n
		}
	}
	if p.path == "" {
		p.path = "."
	}
	return p
}

func copyAll(cmd *cobra.Command, s *base.Session, from []place, to place) error {
	remote := to
	for _, f := range from {
		switch {
		case f.cluster != "" && to.cluster != "":
			return fault.New(fault.Invalid, "one side has to be on this machine")
		case f.cluster != "" && remote.cluster != "" && (f.cluster != remote.cluster || f.rank != remote.rank):
			return fault.New(fault.Invalid, "all sources have to be on one rank")
		case f.cluster != "":
			remote = f
		case to.cluster == "":
			return fault.New(fault.Invalid, "nothing of this is on a cluster: write CLUSTER:PATH")
		}
	}
	c := s.Client(cmd)
	cl, err := base.FindCluster(cmd.Context(), c, remote.cluster)
	if err != nil {
		return err
	}
	return withRank(cmd.Context(), c, cl, remote.rank, func(node *ssh.Client) error {
		stop := context.AfterFunc(cmd.Context(), func() { node.Close() })
		defer stop()
		files, err := sftp.NewClient(node, sftp.UseConcurrentWrites(true))
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "the node serves no files: %s", err)
		}
		defer files.Close()
		for _, f := range from {
			t := transfer{from: side(f, files), to: side(to, files)}
			if err := t.run(f.path, to.path); err != nil {
				return err
			}
		}
		return nil
	})
}

// tree is a file system here or there.
type tree interface {
	Stat(p string) (fs.FileInfo, error)
	ReadDir(p string) ([]fs.FileInfo, error)
	MkdirAll(p string) error
	Chmod(p string, mode fs.FileMode) error
	Open(p string) (io.ReadCloser, error)
	Create(p string) (io.WriteCloser, error)
	Join(elem ...string) string
	Base(p string) string
}

func side(p place, files *sftp.Client) tree {
	if p.cluster == "" {
		return here{}
	}
	return there{files}
}

type transfer struct{ from, to tree }

// run copies one source into or onto the target.
func (t transfer) run(source, target string) error {
	info, err := t.from.Stat(source)
	if err != nil {
		return missing(source, err)
	}
	if at, err := t.to.Stat(target); err == nil && at.IsDir() {
		name := t.from.Base(source)
		if name != "." && name != "/" && name != ".." {
			target = t.to.Join(target, name)
		}
	}
	return t.copy(source, target, info, 0)
}

// maxDepth ends a copy that goes round in circles by way of a link.
const maxDepth = 100

func (t transfer) copy(source, target string, info fs.FileInfo, depth int) error {
	switch {
	case depth > maxDepth:
		return fault.New(fault.Invalid, "%s lies too deep: does a link lead to a folder above itself?", source)
	case info.IsDir():
		return t.folder(source, target, info, depth)
	case info.Mode().IsRegular():
		return t.file(source, target, info)
	}
	return fault.New(fault.Invalid, "%s is neither a file nor a folder", source)
}

func (t transfer) folder(source, target string, info fs.FileInfo, depth int) error {
	if err := t.to.MkdirAll(target); err != nil {
		return missing(target, err)
	}
	entries, err := t.from.ReadDir(source)
	if err != nil {
		return missing(source, err)
	}
	for _, e := range entries {
		// A name that a host sends is a name, not a way out of the target.
		if e.Name() == "." || e.Name() == ".." || strings.ContainsAny(e.Name(), "/\x00") {
			return fault.New(fault.Invalid, "%s holds an entry with an impossible name", source)
		}
		child := t.from.Join(source, e.Name())
		at, err := t.from.Stat(child) // through links, as scp -r does
		if err != nil {
			return missing(child, err)
		}
		if err := t.copy(child, t.to.Join(target, e.Name()), at, depth+1); err != nil {
			return err
		}
	}
	return missing(target, t.to.Chmod(target, info.Mode().Perm()))
}

func (t transfer) file(source, target string, info fs.FileInfo) error {
	in, err := t.from.Open(source)
	if err != nil {
		return missing(source, err)
	}
	defer in.Close()
	out, err := t.to.Create(target)
	if err != nil {
		return missing(target, err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s was not copied whole: %s", source, err)
	}
	return missing(target, t.to.Chmod(target, info.Mode().Perm()))
}

// missing says of which path an error is.
func missing(p string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%s not found", p)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Forbidden, "%s: permission denied", p)
	}
	return fmt.Errorf("%s: %w", p, err)
}

type here struct{}

func (here) Stat(p string) (fs.FileInfo, error) { return os.Stat(p) }
func (here) ReadDir(p string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(p)
	out := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		info, ierr := e.Info()
		if ierr != nil {
			return nil, ierr
		}
		out = append(out, info)
	}
	return out, err
}
func (here) MkdirAll(p string) error                 { return os.MkdirAll(p, 0o755) }
func (here) Chmod(p string, mode fs.FileMode) error  { return os.Chmod(p, mode) }
func (here) Open(p string) (io.ReadCloser, error)    { return os.Open(p) }
func (here) Create(p string) (io.WriteCloser, error) { return os.Create(p) }
func (here) Join(elem ...string) string              { return filepath.Join(elem...) }
func (here) Base(p string) string                    { return filepath.Base(filepath.Clean(p)) }

type there struct{ *sftp.Client }

func (t there) Open(p string) (io.ReadCloser, error)    { return t.Client.Open(p) }
func (t there) Create(p string) (io.WriteCloser, error) { return t.Client.Create(p) }
func (t there) Base(p string) string                    { return path.Base(path.Clean(p)) }
