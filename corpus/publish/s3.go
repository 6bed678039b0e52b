package publish

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// Environment variables of S3, as its other programs have them. The key may lie in
// a file that only its owner can read, named by the variable with _FILE behind it.
const (
	s3ID      = "AWS_ACCESS_KEY_ID"
	s3Key     = "AWS_SECRET_ACCESS_KEY"
	s3Session = "AWS_SESSION_TOKEN"
	s3Region  = "AWS_REGION"
)

// maxExpires is the longest time that S3 signs an address for.
const maxExpires = 7 * 24 * time.Hour

// s3 is a bucket of S3, or of a storage that speaks as it does.
type s3 struct {
	client         *minio.Client
	bucket, prefix string
	public         string // "": signed addresses
	expires        time.Duration
}

func openS3(bucket, prefix string, o Options) (*s3, error) {
	// The id is no secret: it stands in every signed address.
	id, key, session := os.Getenv(s3ID), secret.FromEnv(s3Key), secret.FromEnv(s3Session)
	if id == "" || key.IsZero() {
		return nil, fail.WithHint(fail.New(fail.Usage, "publish", o.To, "there are no credentials"), "set "+s3ID+" and "+s3Key)
	}
	if o.Public == "" && !session.IsZero() {
		return nil, fail.WithHint(fail.New(fail.Usage, "publish", o.To, "addresses signed with a session token hold that token"), "give --public, or lasting credentials")
	}
	endpoint, secure := "s3.amazonaws.com", true
	if o.Endpoint != "" {
		scheme, host, _ := strings.Cut(o.Endpoint, "://")
		endpoint, secure = strings.TrimRight(host, "/"), scheme == "https"
	}
	client, err := minio.New(endpoint, &minio.Options{Creds: credentials.NewStaticV4(id, key.Reveal(), session.Reveal()), Secure: secure,
		Region: os.Getenv(s3Region), MaxRetries: 1, TrailingHeaders: true})
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "publish", o.To, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &s3{client: client, bucket: bucket, prefix: prefix, public: strings.TrimRight(o.Public, "/"), expires: o.Expires}, nil
}

func (s *s3) has(ctx context.Context, name string, size int) (bool, *retry.Fault) {
	info, err := s.client.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	if err == nil {
		return info.Size == int64(size), nil
	}
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		return false, nil // put tells a missing bucket
	}
	return false, s.fault(ctx, err)
}

func (s *s3) put(ctx context.Context, name string, data []byte) *retry.Fault {
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{ContentType: http.DetectContentType(data), CacheControl: "public, max-age=31536000, immutable", DisableMultipart: true})
	if err != nil {
		return s.fault(ctx, err)
	}
	return nil
}

func (s *s3) fault(ctx context.Context, err error) *retry.Fault {
	said := minio.ToErrorResponse(err)
	if said.StatusCode == 0 {
		return transport(ctx, err)
	}
	f := ofStatus(said.StatusCode, said.Message)
	if said.Code != "" {
		f.Class = said.Code
	}
	if said.Code == "RequestTimeTooSkewed" {
		f.Err = errors.New("the clock of this machine is wrong")
	}
	return f
}

func (s *s3) address(ctx context.Context, name string) (string, time.Time, error) {
	if s.public != "" {
		return s.public + "/" + s.prefix + name, time.Time{}, nil
	}
	expires := time.Now().UTC().Add(s.expires).Truncate(time.Second)
	u, err := s.client.PresignedGetObject(ctx, s.bucket, s.prefix+name, s.expires, nil)
	if err != nil {
		return "", time.Time{}, fail.Wrap(fail.Service, "sign address", s.prefix+name, err)
	}
	return u.String(), expires, nil
}

func (s *s3) remedy() string {
	return "check the bucket, " + s3ID + ", " + s3Key + " and " + s3Region
}
