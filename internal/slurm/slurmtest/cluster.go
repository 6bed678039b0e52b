// Package slurmtest starts a Slurm cluster of one node for tests: munged, slurmctld
// and slurmd in a temporary folder, on loopback ports of their own, without systemd.
// It needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root.
package slurmtest

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Cluster is a running one. Its Slurm commands find it by SLURM_CONF.
type Cluster struct {
	Dir  string
	Conf string
	Host string
}

// conf is for any number of CPUs, whatever the machine has: batch is the partition of
// everyone, urgent takes CPUs away from it.
const conf = `ClusterName=searchloop
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge/sock
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MaxArraySize=%[5]d
JobCompType=jobcomp/filetxt
JobCompLoc=%[2]s/jobcomp.txt
ReturnToService=2
KillWait=5
GresTypes=gpu
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=%[6]d RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=batch Nodes=%[1]s Default=YES State=UP PriorityTier=1
PartitionName=urgent Nodes=%[1]s State=UP PriorityTier=10 PreemptMode=OFF
`

// Missing says why no cluster can be started here; "" when one can.
func Missing() string {
	for _, p := range []string{"slurmctld", "slurmd", "sbatch", "munged"} {
		if _, err := exec.LookPath(p); err != nil {
			if _, err := os.Stat("/usr/sbin/" + p); err != nil {
				return p + " is not installed (Debian: apt-get install slurmctld slurmd slurm-client munge)"
			}
		}
	}
	if os.Getuid() != 0 {
		return "starting slurmd needs root"
	}
	return ""
}

// Start starts a cluster and sets SLURM_CONF for this process. stop ends it. cpus is how
// many it believes to have, arrays its MaxArraySize.
func Start(cpus, arrays int) (c *Cluster, stop func(), err error) {
	dir, err := os.MkdirTemp("", "slurmtest-")
	if err != nil {
		return nil, nil, err
	}
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	c = &Cluster{Dir: dir, Conf: filepath.Join(dir, "slurm.conf"), Host: host}
	stop = func() {
		c.end("slurmd.pid")
		c.end("slurmctld.pid")
		c.end("munge/pid")
		os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, c.logs())
			stop()
		}
	}()
	for _, d := range []string{"state", "spool", "munge"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return nil, nil, err
		}
	}
	key := make([]byte, 128)
	rand.Read(key)
	if err := os.WriteFile(filepath.Join(dir, "munge/key"), key, 0o600); err != nil {
		return nil, nil, err
	}
	ports, err := free(2)
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(c.Conf, fmt.Appendf(nil, conf, host, dir, ports[0], ports[1], arrays, cpus), 0o644); err != nil {
		return nil, nil, err
	}
	// GPUs that are only there for the scheduler: device files without a device.
	gres := ""
	for i := range 2 {
		path := fmt.Sprintf("%s/nvidia%d", dir, i)
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o600, 195<<8|i); err != nil {
			return nil, nil, fmt.Errorf("mknod %s: %w", path, err)
		}
		gres += fmt.Sprintf("NodeName=%s Name=gpu File=%s\n", host, path)
	}
	if err := os.WriteFile(filepath.Join(dir, "gres.conf"), []byte(gres), 0o644); err != nil {
		return nil, nil, err
	}
	os.Setenv("SLURM_CONF", c.Conf)
	m := dir + "/munge/"
	if err := daemon("munged", "--force", "--key-file="+m+"key", "--socket="+m+"sock", "--pid-file="+m+"pid", "--log-file="+m+"log", "--seed-file="+m+"seed"); err != nil {
		return nil, nil, err
	}
	if err := c.StartController(); err != nil {
		return nil, nil, err
	}
	if err := daemon("slurmd", "-f", c.Conf); err != nil {
		return nil, nil, err
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		out, err := exec.Command("sinfo", "-h", "-o", "%t").Output()
		if err == nil && strings.Contains(string(out), "idle") {
			return c, stop, nil
		}
		if time.Now().After(end) {
			return nil, nil, fmt.Errorf("the node is not idle: %s %v", out, err)
		}
	}
}

// daemon starts a program that goes into the background by itself. Its output is a
// file: a pipe would be open as long as the daemon lives.
func daemon(name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name
	}
	f, err := os.CreateTemp("", "slurmtest-out-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(f.Name())
		return fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return nil
}

// StartController starts slurmctld, again after StopController.
func (c *Cluster) StartController() error { return daemon("slurmctld", "-f", c.Conf) }

// StopController ends slurmctld with TERM, so that it saves its state.
func (c *Cluster) StopController() { c.end("slurmctld.pid") }

// end sends TERM to the process of a pid file and waits for its end.
func (c *Cluster) end(file string) {
	text, err := os.ReadFile(filepath.Join(c.Dir, file))
	if err != nil {
		return
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 1 {
		return
	}
	syscall.Kill(pid, syscall.SIGTERM)
	for range 100 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	syscall.Kill(pid, syscall.SIGKILL)
}

// logs is the end of the daemons' logs.
func (c *Cluster) logs() string {
	var b strings.Builder
	for _, name := range []string{"slurmctld.log", "slurmd.log", "munge/log"} {
		text, _ := os.ReadFile(filepath.Join(c.Dir, name))
		b.WriteString(name + ":\n" + string(text[max(0, len(text)-2000):]) + "\n")
	}
	return b.String()
}

// free finds TCP ports that nobody listens on.
func free(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
