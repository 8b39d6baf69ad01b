package barrier

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/leasefiles"
)

// several reports whether the cluster has several nodes.
func (i Init) several() bool {
	nodes := ""
	for _, kv := range i.Env {
		if v, ok := strings.CutPrefix(kv, "NNODES="); ok {
			nodes = v
		}
	}
	n, err := strconv.Atoi(nodes)
	return err == nil && n > 1
}

// linkHostfile makes JobDir, with a link to the host file, in clusters of several nodes. It changes nothing if JobDir
// exists: then it is the image's or the renter's. It ignores errors: most commands need no link, and the image's user
// may not be allowed to make one.
func (i Init) linkHostfile() {
	if i.JobDir == "" || !i.several() || os.Mkdir(i.JobDir, 0o755) != nil {
		return
	}
	_ = os.Symlink(leasefiles.Layout{Node: i.NodeDir}.Hostfile(), filepath.Join(i.JobDir, "hostfile"))
}
