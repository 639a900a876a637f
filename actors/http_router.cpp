#include "actors/http_router.hpp"

#include <utility>

namespace kvasir {

void http_router::get(const char* pattern, httplib::Server::Handler handler) {
  routes_.push_back({std::regex{pattern}, {"GET", "HEAD"}});
  server_.Get(pattern, std::move(handler));
}

void http_router::post(const char* pattern, httplib::Server::Handler handler) {
  routes_.push_back({std::regex{pattern}, {"POST"}});
  server_.Post(pattern, std::move(handler));
}

void http_router::put(const char* pattern, httplib::Server::Handler handler) {
  routes_.push_back({std::regex{pattern}, {"PUT"}});
  server_.Put(pattern, std::move(handler));
}

void http_router::del(const char* pattern, httplib::Server::Handler handler) {
  routes_.push_back({std::regex{pattern}, {"DELETE"}});
  server_.Delete(pattern, std::move(handler));
}

std::vector<std::string> http_router::methods_of(const std::string& path) const {
  std::vector<std::string> result;
  for (const auto& one : routes_)
    if (std::regex_match(path, one.pattern))
      result.insert(result.end(), one.methods.begin(), one.methods.end());
  return result;
}

} // namespace kvasir
