package kv

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"searchloop/internal/fail"
	"searchloop/internal/secret"
)

// PasswordName is the environment variable of the password of Redis, or with
// _FILE behind it that of a file that only its owner can read.
const PasswordName = "REDIS_PASSWORD"

// prefix sets our keys apart from those of others in the same Redis.
const prefix = "searchloop:"

// down is how long Redis is left alone after a failure: those who can do without
// it should not wait for it each time.
const down = 5 * time.Second

// slotScript is booked in Lua, by the clock of Redis, in microseconds: KEYS[1] the
// queue, ARGV its interval and burst. The key goes when the queue is empty again.
var slotScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local every, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
local wait = math.max(0, full - now - (burst - 1) * every)
redis.call('SET', KEYS[1], string.format('%.0f', full + every), 'PX', math.ceil((full + every - now) / 1000) + 1)
return wait`)

// silent keeps the client from writing to stderr past the job's log: every failure
// is returned as an error too.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silent{}) }

// server is a Store in Redis.
type server struct {
	client *redis.Client
	shown  string
	until  atomic.Int64 // Unix nanoseconds; before that Redis is not asked
}

func openRedis(ctx context.Context, place string) (*server, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, fail.New(fail.Usage, "connect to Redis", "", "not a redis:// URL")
	}
	if pass, ok := u.User.Password(); ok {
		secret.New(pass)
		return nil, fail.WithHint(fail.New(fail.Usage, "connect to Redis", "", "the URL holds a password, which command lines show to everyone"),
			"put it into the variable "+PasswordName+", or its file's name into "+PasswordName+"_FILE")
	}
	opt, err := redis.ParseURL(place)
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "connect to Redis", place, err)
	}
	opt.Password = secret.FromEnv(PasswordName).Reveal()
	opt.MaxRetries, opt.DialerRetries = -1, 1 // whoever asks goes on without, or asks again
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	opt.ContextTimeoutEnabled = true
	s := &server{client: redis.NewClient(opt), shown: place}
	if err := s.client.Ping(ctx).Err(); err != nil {
		s.client.Close()
		e := fail.New(fail.Service, "connect to Redis", place, "%s", secret.Scrub(err.Error()))
		e.Hint = "start it, or give a folder instead"
		if strings.Contains(err.Error(), "NOAUTH") || strings.Contains(err.Error(), "WRONGPASS") {
			e.Hint = "check the password in " + PasswordName
		}
		return nil, e
	}
	return s, nil
}

// do runs a command unless Redis failed a moment ago.
func (s *server) do(ctx context.Context, op string, command func() error) error {
	if time.Now().UnixNano() < s.until.Load() {
		return fail.New(fail.Service, op, s.shown, "Redis does not answer")
	}
	err := command()
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	if ctx.Err() != nil {
		return fail.Wrap(fail.Interrupted, op, s.shown, context.Cause(ctx))
	}
	s.until.Store(time.Now().Add(down).UnixNano())
	return fail.New(fail.Service, op, s.shown, "%s", secret.Scrub(err.Error()))
}

func (s *server) Get(ctx context.Context, key string) (value []byte, found bool, err error) {
	err = s.do(ctx, "read store", func() (err error) {
		value, err = s.client.Get(ctx, prefix+"value:"+key).Bytes()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s *server) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.do(ctx, "write store", func() error { return s.client.Set(ctx, prefix+"value:"+key, value, ttl).Err() })
}

func (s *server) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = s.do(ctx, "write store", func() (err error) {
		sum, err = s.client.IncrBy(ctx, prefix+"number:"+key, delta).Result()
		return err
	})
	return sum, err
}

func (s *server) Slot(ctx context.Context, key string, every time.Duration, burst int) (wait time.Duration, err error) {
	err = s.do(ctx, "book a place", func() error {
		us, err := slotScript.Run(ctx, s.client, []string{prefix + "queue:" + key}, every.Microseconds(), burst).Int64()
		wait = time.Duration(us) * time.Microsecond
		return err
	})
	return wait, err
}

func (s *server) Close() error {
	return fail.Wrap(fail.Service, "close store", s.shown, s.client.Close())
}
