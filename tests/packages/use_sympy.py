import sympy
import torch

x, y = sympy.symbols("x y")
print(sympy.solve(x**2 - 5 * x + 6, x), sympy.integrate(sympy.sin(x) ** 2, x), sympy.series(sympy.exp(x), x, 0, 4))
gradient = [sympy.diff(x**2 * y + sympy.cos(x * y), name) for name in (x, y)]
function = sympy.lambdify((x, y), gradient, modules=[{"cos": torch.cos, "sin": torch.sin}])
torch.manual_seed(0)
point = torch.randn(2, requires_grad=True)
value = point[0] ** 2 * point[1] + torch.cos(point[0] * point[1])
value.backward()
print(gradient, [one.item() for one in function(*point.detach())], point.grad.tolist())
