import optuna
import torch

optuna.logging.set_verbosity(optuna.logging.ERROR)


def train(trial):
    torch.manual_seed(0)
    width, lr = trial.suggest_int("width", 2, 8), trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.randn(16, 4)
    for step in range(4):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        trial.report(loss.item(), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss.item()


study = optuna.create_study(
    sampler=optuna.samplers.TPESampler(seed=5), pruner=optuna.pruners.MedianPruner(n_startup_trials=4)
)
study.optimize(train, n_trials=14)
print(study.best_value, study.best_params, [trial.state.name for trial in study.trials])
