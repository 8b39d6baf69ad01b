package cluster

import (
	"maps"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// specFlags are a cluster's spec on the command line.
type specFlags struct {
	session                                        *base.Session // to read templates; nil: there is no --template
	template                                       string
	file, envFile                                  string
	name, project, gpu, image, restart, egress     string
	entrypoint, user                               string
	scope, onFailure, registryUser, runtime, trust string
	maxPrice, budget, maxDuration                  string
	nodes, gpus                                    int
	disk, scratch                                  int64
	diskLimited                                    bool
	minGbps, minBusbw                              float64
	fabric                                         string
	labels, env, ports, keys, mounts               []string
}

func (f *specFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "read the spec from a YAML or JSON file, - for standard input; flags "+
		"override it")
	if f.session != nil {
		fs.StringVar(&f.template, "template", "", "start from a template; flags override it")
	}
	fs.StringVar(&f.name, "name", "", "name of the cluster")
	fs.StringVar(&f.project, "project", "", "project that the cost counts towards")
	fs.StringArrayVar(&f.labels, "label", nil, "KEY=VALUE; repeatable")
	fs.IntVar(&f.nodes, "nodes", 0, "nodes (default 1)")
	fs.IntVar(&f.gpus, "gpus", 0, "GPUs per node (default 1)")
	fs.StringVar(&f.gpu, "gpu", "", "offer query every node must match, such as 'gpu_model=H100 vram_gb>=80'")
	fs.StringVar(&f.image, "image", "", "container image")
	fs.StringVar(&f.entrypoint, "entrypoint", "", "program and arguments to run in place of the image's entry point and "+
		"command, such as 'bash -c'")
	fs.StringVar(&f.user, "user", "", "user to run as in place of the image's own, such as root, 1000 or app:users")
	fs.StringVar(&f.registryUser, "registry-user", "", "user of a private registry; the password is read from "+
		"MUSTER_REGISTRY_PASSWORD, or asked for")
	fs.StringVar(&f.restart, "restart", "", "never or on_failure")
	fs.StringVar(&f.egress, "egress", "", "full, limited or off")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "KEY=VALUE, or KEY alone to pass on its "+
		"value from your environment; repeatable")
	fs.StringVar(&f.envFile, "env-file", "", "file of KEY=VALUE lines, see muster cluster create --help; unlike those of "+
		"--env, other users of this machine cannot see them")
	fs.StringArrayVarP(&f.ports, "port", "p", nil, "PORT, which is tcp, or PORT/http, which the page links to; repeatable")
	base.Gigabytes(fs, &f.disk, "disk", 0, "disk space per node (default 10)")
	fs.BoolVar(&f.diskLimited, "disk-limited", false, "only hosts that enforce the limit of --disk")
	base.Gigabytes(fs, &f.scratch, "scratch-gb", 0, "space per node on a fast disk, empty at /scratch, gone with the "+
		"node; included in the price")
	fs.StringArrayVar(&f.mounts, "mount", nil,
		"VOLUME:PATH[:ro|:ranks][:every=SECONDS], a volume by id or name, VOLUME:PATH:ro:lazy[:cache=GB], a volume that is "+
			"read when needed, bucket:NAME:PATH[:ro][:cache=GB], a bucket of yours, or shared:NAME:PATH[:ro], your folder on "+
			"a shared file system; repeatable")
	fs.StringVar(&f.trust, "trust", "", "bonded (default), or any: also places the cluster on hosts of "+
		"several operators that have no bonds")
	fs.StringVar(&f.runtime, "runtime", "", "runc (default), or runsc: gVisor, where a host has it")
	fs.StringArrayVar(&f.keys, "ssh-key", nil, "id of an SSH key; repeatable")
	fs.StringVar(&f.maxPrice, "max-price", "", "most that the whole cluster may cost per hour")
	fs.StringVar(&f.maxDuration, "max-duration", "", "longest running time: 90m, 2h, or seconds")
	fs.StringVar(&f.budget, "budget", "", "most that the cluster may cost in all; it shuts down cleanly before "+
		"it exceeds this")
	fs.StringVar(&f.scope, "scope", "", "any, fabric or host: how far apart the nodes may be")
	fs.Float64Var(&f.minGbps, "min-gbps", 0, "lowest all-reduce bandwidth between nodes, in Gbit/s")
	fs.StringVar(&f.fabric, "fabric", "", "rdma: whole hosts of one fabric, with their RDMA ports")
	fs.Float64Var(&f.minBusbw, "min-busbw", 0, "with --fabric: lowest Gbit/s of all-reduce over RDMA as "+
		"measured, or else of a host's ports together")
	fs.StringVar(&f.onFailure, "on-node-failure", "", "fail, ignore or replace")
	_ = cmd.RegisterFlagCompletionFunc("gpu", base.QueryTerms)
	for name, words := range map[string][]string{
		"restart":         {"never", "on_failure"},
		"runtime":         {"runc", "runsc"},
		"trust":           {"bonded", "any"},
		"egress":          {"full", "limited", "off"},
		"scope":           {"any", "fabric", "host"},
		"on-node-failure": {"fail", "ignore", "replace"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

// spec puts file, flags and command together. What is wrong beyond syntax, the server says.
func (f *specFlags) spec(cmd *cobra.Command, command []string) (client.Spec, error) {
	var s client.Spec
	if f.template != "" {
		if err := readTemplate(cmd.Context(), f.session.Client(cmd), f.template, &s); err != nil {
			return s, err
		}
	}
	if f.file != "" {
		if err := f.read(cmd, &s); err != nil {
			return s, err
		}
	}
	lay(&s.Name, f.name)
	lay(&s.Project, f.project)
	lay(&s.GPU, f.gpu)
	lay(&s.Image, f.image)
	lay(&s.User, f.user)
	lay(&s.Restart, f.restart)
	lay(&s.Egress, f.egress)
	lay(&s.OnNodeFailure, f.onFailure)
	lay(&s.Nodes, f.nodes)
	lay(&s.GPUsPerNode, f.gpus)
	lay(&s.DiskGB, f.disk)
	lay(&s.DiskLimited, f.diskLimited)
	lay(&s.ScratchGB, f.scratch)
	lay(&s.Runtime, f.runtime)
	lay(&s.Trust, f.trust)
	if len(command) > 0 {
		s.Command = command
	}
	if f.scope != "" || f.minGbps != 0 || f.fabric != "" || f.minBusbw != 0 {
		if s.Network == nil {
			s.Network = &client.Network{}
		}
		lay(&s.Network.Scope, f.scope)
		lay(&s.Network.MinGbps, f.minGbps)
		lay(&s.Network.Fabric, f.fabric)
		lay(&s.Network.MinBusbwGbps, f.minBusbw)
	}
	var bad fault.Fields
	if f.entrypoint != "" {
		words, err := shellquote.Split(f.entrypoint)
		base.Note(&bad, "--entrypoint", err)
		s.Entrypoint = words
	}
	f.limits(&s, &bad)
	given := f.lists(cmd, &s, &bad)
	if err := bad.Err(); err != nil {
		return s, err
	}
	if err := f.readMounts(cmd, &s); err != nil {
		return s, err
	}
	return s, f.secrets(cmd, &s, given)
}

func lay[T comparable](to *T, flag T) {
	var zero T
	if flag != zero {
		*to = flag
	}
}

func (f *specFlags) read(cmd *cobra.Command, s *client.Spec) error {
	raw, err := base.ReadFile(cmd, f.file)
	if err != nil {
		return err
	}
	name := f.file
	if name == "-" {
		name = "standard input"
	}
	return readSpec(name, raw, s)
}

func (f *specFlags) limits(s *client.Spec, bad *fault.Fields) {
	if f.maxPrice != "" {
		v, err := money.ParseMicro(f.maxPrice)
		base.Note(bad, "--max-price", err)
		s.MaxPricePerHour = &v
	}
	if f.budget != "" {
		v, err := money.ParseNano(f.budget)
		base.Note(bad, "--budget", err)
		s.Budget = &v
	}
	if f.maxDuration != "" {
		v, err := base.ParseSeconds(f.maxDuration)
		base.Note(bad, "--max-duration", err)
		s.MaxDuration = &v
	}
}

// lists adds what flags list. It returns the variables of --env.
func (f *specFlags) lists(cmd *cobra.Command, s *client.Spec, bad *fault.Fields) (given map[string]string) {
	for _, l := range f.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			bad.Add("--label", "want KEY=VALUE")
		}
		put(&s.Labels, k, v)
	}
	for _, e := range f.env {
		k, v, ok := strings.Cut(e, "=")
		if !ok {
			if v, ok = base.LookupVariable(cmd.Context(), k); !ok {
				bad.Add("--env", "%s is not set in your environment: want KEY=VALUE, or KEY= for an empty value", k)
			}
		}
		put(&s.Env, k, v)
		put(&given, k, v)
	}
	for _, p := range f.ports {
		number, protocol, _ := strings.Cut(p, "/")
		n, err := strconv.Atoi(number)
		if err != nil {
			bad.Add("--port", "want PORT, which is tcp, or PORT/http")
		}
		s.Ports = append(s.Ports, client.Port{Port: n, Protocol: base.FirstOf(protocol, "tcp")})
	}
	for _, k := range f.keys {
		v, err := id.Parse[id.SSHKey](k)
		if err != nil {
			bad.Add("--ssh-key", "want the id of an SSH key, see muster ssh-key list")
		}
		s.SSHKeyIDs = append(s.SSHKeyIDs, v)
	}
	return given
}

func put(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = v
}

func (f *specFlags) secrets(cmd *cobra.Command, s *client.Spec, given map[string]string) error {
	if f.envFile != "" {
		raw, err := base.ReadFile(cmd, f.envFile)
		if err != nil {
			return err
		}
		name := f.envFile
		if name == "-" {
			name = "standard input"
		}
		lookup := func(name string) (string, bool) { return base.LookupVariable(cmd.Context(), name) }
		err = readEnv(name, raw, lookup, func(k, v string) { put(&s.Env, k, v) })
		if err != nil {
			return err
		}
	}
	maps.Copy(s.Env, given) // --env counts more
	if f.registryUser == "" {
		return nil
	}
	password := base.Variable(cmd.Context(), "MUSTER_REGISTRY_PASSWORD")
	if password == "" {
		var err error
		if password, err = base.Secret(cmd, "Registry password"); err != nil {
			return err
		}
	}
	s.RegistryAuth = &client.RegistryAuth{Username: f.registryUser, Password: password}
	return nil
}
