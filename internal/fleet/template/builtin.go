package template

import (
	_ "embed"
	"slices"

	"github.com/musterhq/muster/internal/fleet/market"
)

// Images of the built-in templates, by tags that their publishers do not move.
const (
	pytorchImage = "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"
	jupyterImage = "quay.io/jupyter/pytorch-notebook:cuda12-python-3.11.8"
)

//go:embed allreduce.py
var allReduce string

//go:embed ddp.py
var ddp string

var (
	paramNodes = Parameter{Field: "nodes", Label: "Nodes"}
	paramGPUs  = Parameter{Field: "gpus_per_node", Label: "GPUs per node"}
	paramQuery = Parameter{Field: "gpu", Label: "GPU", Help: "Words such as h100, or a query. Empty: the cheapest."}
)

// torchrun returns the command that runs a script with one process for each GPU of every rank.
func torchrun(script string) []string {
	return []string{"bash", "-c", "cat > /tmp/main.py <<'END'\n" + script + "END\n" +
		`exec python3 -m torch.distributed.run --nnodes "$NNODES" --node_rank "$NODE_RANK" ` +
		`--nproc_per_node "$NPROC_PER_NODE" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" /tmp/main.py` + "\n"}
}

// builtIn returns the built-in templates.
func builtIn() []Template {
	reduce := market.DefaultSpec()
	reduce.Name, reduce.Nodes, reduce.Image, reduce.DiskGB = "all-reduce", 2, pytorchImage, 30
	reduce.Command, reduce.Env = torchrun(allReduce), map[string]string{"MEGABYTES": "256"}

	train := market.DefaultSpec()
	train.Name, train.Nodes, train.Image, train.DiskGB = "pytorch-ddp", 2, pytorchImage, 30
	train.Command, train.Env = torchrun(ddp), map[string]string{"STEPS": "500"}
	train.OnNodeFailure, train.Restart = "replace", "on_failure"

	lab := market.DefaultSpec()
	lab.Name, lab.Image, lab.DiskGB = "jupyterlab", jupyterImage, 50
	lab.Command = []string{"start-notebook.py", "--ServerApp.ip=0.0.0.0", "--ServerApp.port=8888",
		"--IdentityProvider.token="}
	lab.Ports = []market.Port{{Port: 8888, Protocol: "http"}}

	return []Template{
		{
			Name: "all-reduce", Title: "All-reduce check", BuiltIn: true, Spec: reduce,
			Description: "Measures the bandwidth between the GPUs of two hosts with NCCL, checks the sum, prints it and ends. " +
				"It takes about a minute after the image is there.",
			Parameters: []Parameter{paramNodes, paramGPUs, paramQuery,
				{Field: "env.MEGABYTES", Label: "Megabytes per round"}},
		},
		{
			Name: "pytorch-ddp", Title: "PyTorch DDP", BuiltIn: true, Spec: train,
			Description: "Trains a small network with DistributedDataParallel on data that it makes up, one process per " +
				"GPU, and prints the loss. Replace the command with your own script. A lost node is replaced, and all ranks " +
				"start again.",
			Parameters: []Parameter{paramNodes, paramGPUs, paramQuery, {Field: "env.STEPS", Label: "Steps"}},
		},
		{
			Name: "jupyterlab", Title: "JupyterLab", BuiltIn: true, Spec: lab,
			Description: "JupyterLab with PyTorch in your browser. When it runs, open port 8888 on the cluster's page: Muster " +
				"checks that you are signed in, so Jupyter's own token is off. Files are deleted when you release it.",
			Parameters: []Parameter{paramGPUs, paramQuery, {Field: "disk_gb", Label: "Disk, GB"}},
		},
	}
}

// standIns returns the templates as a development platform starts them: with the demo image, which is there, and needs
// neither a real GPU nor the internet.
func standIns(real []Template, image string) []Template {
	out := slices.Clone(real)
	for i := range out {
		t := &out[i]
		t.Spec.Image, t.Spec.DiskGB, t.Spec.Env = image, market.DefaultSpec().DiskGB, map[string]string{}
		if t.Name == "jupyterlab" {
			t.Spec.Command = []string{"serve", "8888"}
			t.StandIn = "GPUs are simulated here, so this starts a small web page of the demo job instead of JupyterLab."
			continue
		}
		t.Spec.Command, t.Spec.Env = []string{"train"}, map[string]string{"TRAIN_STEPS": "500", "TRAIN_STEP_MS": "20"}
		t.Parameters = []Parameter{paramNodes, paramGPUs, paramQuery, {Field: "env.TRAIN_STEPS", Label: "Steps"}}
		t.StandIn = "GPUs are simulated here, so this starts the demo job instead of PyTorch: it trains a small model on " +
			"CPUs, with a real all-reduce between the ranks at each step."
	}
	return out
}
