package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

// keyNote returns a note to print before ssh fails with "Permission denied (publickey)": that none of the keys of
// the organisation is among those of this machine. It is "" if one is.
func keyNote(org []client.SSHKey, here map[string]bool) string {
	const add = "Add one: muster ssh-key add ~/.ssh/id_ed25519.pub\n"
	for _, k := range org {
		if here[k.Fingerprint] {
			return ""
		}
	}
	if len(org) == 0 {
		return "Your organisation has no SSH keys. " + add
	}
	return "None of your organisation's SSH keys was found in ~/.ssh or in ssh-agent. " + add
}

// localKeys returns the fingerprints of the public keys in ~/.ssh, next to the identity file, and in ssh-agent.
func localKeys(ctx context.Context, identity string) map[string]bool {
	here := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(base.Variable(ctx, "HOME"), ".ssh", "*.pub"))
	if identity != "" {
		files = []string{identity + ".pub"}
	}
	for _, f := range files {
		if raw, err := os.ReadFile(f); err == nil {
			if k, _, _, _, err := ssh.ParseAuthorizedKey(raw); err == nil {
				here[ssh.FingerprintSHA256(k)] = true
			}
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", base.Variable(ctx, "SSH_AUTH_SOCK"))
	if err != nil {
		return here
	}
	defer conn.Close()
	held, err := agent.NewClient(conn).List()
	if err != nil {
		return here
	}
	for _, k := range held {
		here[ssh.FingerprintSHA256(k)] = true
	}
	return here
}
